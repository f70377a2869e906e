//! The register of error codes: one place, so that `explain`, messages and documents agree.
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! codes {
    ($($variant:ident $text:literal $title:literal $meaning:literal $fix:literal;)*) => {
        /// A stable error or denial code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Code {
            $(#[doc = $title] #[serde(rename = $text)] $variant,)*
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// What `bastle explain` says about it.
            #[must_use]
            pub fn info(self) -> CodeInfo {
                match self { $(Self::$variant => CodeInfo { code: $text, title: $title, meaning: $meaning, fix: $fix },)* }
            }
        }
    };
}

/// What is known of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CodeInfo {
    /// The code itself.
    pub code: &'static str,
    /// One line.
    pub title: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// The remedy that `bastle explain` prints.
    pub fix: &'static str,
}

codes! {
    FsWrite "BST-FS-001" "write outside the writable places"
        "A process in the fence tried to write where the policy grants no writing. The kernel refused: the place is mounted read-only, or Landlock does not grant it."
        "If the agent should write there: bastle run --rw PATH -- CMD, or add the path to fs.write of a trusted policy layer.";
    FsHidden "BST-FS-002" "hidden name"
        "A process tried to create, rename to or link a name that the policy hides (for example .env*). Files with such names that existed at start are covered by an empty, unreadable file."
        "Remove the pattern from fs.hide of the layer that states it (bastle policy show --origin), or name a different file.";
    FsProtected "BST-FS-003" "protected name"
        "A process tried to change a name that the policy protects (for example .git/hooks), because a program on the host would execute it later. Changing it needs approval, and no approver is attached."
        "Make the change yourself after the run, or remove the pattern from fs.protect of the layer that states it.";
    FsRead "BST-FS-004" "path not visible inside"
        "The path is not part of the policy's reading grants, so it does not exist inside the fence. The kernel answers ENOENT and reports nothing to bastle."
        "bastle run --ro PATH -- CMD, or add the path to fs.read of a trusted policy layer.";
    FsFloor "BST-FS-005" "path of the hard floor"
        "The path holds credentials or bastle's own state. No policy layer can open it."
        "bastle run --unprotect PATH -- CMD, on the command line only, if you mean it.";
    ExecDenied "BST-EXEC-001" "program denied by policy"
        "An exec rule names this program. The program file is covered inside the fence; the rule holds for that path and is advisory for copies of the program."
        "Remove the rule from exec.deny of the layer that states it.";
    ExecNotFound "BST-EXEC-002" "program not found inside the fence"
        "The command does not exist in the constructed root, or its directory is not granted for reading."
        "Check the spelling; grant its directory: bastle run --ro DIRECTORY -- CMD, or use --preset dev for toolchains in the home directory.";
    ExecFailed "BST-EXEC-003" "program cannot be executed"
        "The file exists inside but the kernel refused to execute it: no execute permission, a missing interpreter, or a masked file."
        "Check its mode and its #! line; both must be visible inside.";
    ExecCommand "BST-EXEC-004" "command line not allowed by the command rules"
        "A command rule (deny, ask or no matching allow) applies to a part of the line. Command rules are advisory: the fence holds without them."
        "bastle why 'COMMAND' shows the part and the rule.";
    ExecBusy "BST-EXEC-005" "no further command can be started in the run"
        "A run has room for 64 further commands and what they left behind, and none is started while the run stands still or ends."
        "Wait for one to end; bastle resume RUN lets a run go on that stands still.";
    ExecCopy "BST-EXEC-006" "the file cannot be copied into or out of the run"
        "Only regular files are copied, one at a time and up to a size; what is there is read and written with the agent's own rights."
        "For directories: bastle export RUN; for larger files: bastle cp --max-size SIZE.";
    PortRefused "BST-EXEC-007" "the port cannot be forwarded"
        "Nothing inside the run listens on that port, its server accepts nobody, or it is a port of egress and not of the agent."
        "Start the server first; it must listen on 127.0.0.1, ::1 or all addresses.";
    ExecTime "BST-EXEC-008" "the further command took too long"
        "A command that was started with a limit of time in a living run was killed when the time was over. The run goes on."
        "Give it more: bastle exec --timeout 10m RUN -- CMD";
    SysDenied "BST-SYS-001" "system call refused"
        "The system-call filter refuses calls that reach the kernel's own configuration, other namespaces or debugging of others (mount, unshare, bpf, keyctl, ...)."
        "No setting opens these. Run the program outside the fence if it needs them.";
    NetDenied "BST-NET-001" "request not allowed by policy"
        "No rule of the policy allows this host, port, method or path, or a rule denies it. The decision was made on the name, before any lookup; nothing was sent."
        "If it should be reachable: bastle run --allow-net HOST -- CMD, or add it to net.allow of a trusted policy layer. bastle why ID tells more.";
    NetAddress "BST-NET-002" "name resolves to a refused address"
        "The name is allowed, but it resolves to a private, loopback, link-local, metadata or otherwise special address; every address of the answer is checked, and the checked one is dialled."
        "If that network is meant: add its range to net.addresses of a trusted policy layer. Metadata services are never reachable.";
    NetLiteral "BST-NET-003" "IP address instead of a name"
        "Rules are about names; a literal address is refused unless net.ipLiterals allows addresses and a rule names this one."
        "Use the host's name.";
    NetPort "BST-NET-004" "port not allowed"
        "Only ports 443 and 80 may be dialled unless net.ports or the rule names another."
        "bastle run --allow-net HOST:PORT -- CMD";
    NetMismatch "BST-NET-005" "the names of one connection differ"
        "The name asked of the proxy, the name in the TLS handshake (SNI) and the Host of the request must be the same; a missing or encrypted name counts as different."
        "Use a client that sends the name it connects to. For a protocol without one, the rule needs \"opaque\": true.";
    NetProtocol "BST-NET-006" "malformed or refused protocol"
        "The bytes are not a request that two readers would understand alike, or they ask for something that has no rule: an upgrade, TRACE, a tunnel in a tunnel, a protocol that is not TLS."
        "Use a plain HTTP/1.1 or HTTP/2 request; for other protocols the rule needs \"opaque\": true.";
    NetResolve "BST-NET-007" "name cannot be resolved"
        "The name is allowed, but the resolvers of the host gave no usable answer; without one nothing is dialled."
        "Check the name, and the host's resolvers or net.resolvers.";
    NetUpstream "BST-NET-008" "server cannot be reached"
        "The request is allowed, but the server or the company proxy did not answer, or its certificate is not trusted. No policy is involved."
        "Check the server; a private certificate authority must be in the host's trust store or in SSL_CERT_FILE.";
    NetNone "BST-NET-009" "no network"
        "The run was started with --net none: its own empty network namespace, loopback only, no route, no resolver."
        "Leave --net none out, or allow hosts: bastle run --allow-net HOST -- CMD";
    NetGit "BST-NET-010" "git push refused"
        "A push is judged by repository, reference and kind (create, update, delete, force). This one is not allowed, or needs a person and none is attached."
        "Push to a branch that git.branches allows, or push yourself after review.";
    NetSecret "BST-NET-011" "credential refused"
        "A placeholder was sent to a host, port, method or path that the secret is not for, or its value is missing or expired. The real value was not sent."
        "bastle secret ls shows what each secret is for.";
    NetBudget "BST-NET-012" "budget used up"
        "A budget of bytes, requests, connections, model tokens or cost is used up; nothing new goes out."
        "Raise it in budget of a trusted policy layer, or bastle run --max-cost 10usd -- CMD";
    NetLimit "BST-NET-013" "too much at once"
        "Too many connections, too large a header or a body larger than the rule allows."
        "Close idle connections; a rule's maxBody can be raised in a trusted layer.";
    NetLost "BST-NET-014" "the egress process ended"
        "The process that decides about requests is gone, so nothing passes; the run is stopped unless it comes back."
        "Look at the message for its last words; check memory and kill -9 by others.";
    NetOperation "BST-NET-015" "operation inside the request refused"
        "The rule for this host names the JSON-RPC (MCP) methods or GraphQL operations that may be used; this one is not among them or cannot be read."
        "Add the operation to the rule in a trusted policy layer.";
    NetLoop "BST-NET-016" "the same request was denied again and again"
        "The answer to a denied request does not change by trying again. After several identical ones the answer is delayed and says so."
        "Allow the host or make the agent go on without it.";
    NetCanary "BST-NET-017" "decoy credential on its way out"
        "Every run with a network has a decoy credential in its home directory. Nobody has a use for it, so whoever sends it has gone looking for credentials. The request was refused."
        "Look at what the run did: bastle audit show RUN. A trusted policy layer can switch the decoy off: \"audit\": {\"canary\": false}";
    SecretStore "BST-SEC-001" "secret cannot be read or kept"
        "The store, file, variable, keyring or helper of a secret failed. Without its value the secret is not injected and the run does not start."
        "bastle secret ls; bastle secret set NAME";
    LimitTime "BST-LIM-001" "wall-time limit"
        "The run took longer than its timeout and everything in it was killed."
        "bastle run --timeout 1h -- CMD";
    LimitMemory "BST-LIM-002" "memory limit"
        "The run used more memory than its limit; the kernel (or the watchdog where no cgroup can be used) killed a process of it."
        "bastle run --mem 8G -- CMD";
    LimitPids "BST-LIM-003" "process limit"
        "The run tried to have more processes and threads than its limit; fork failed with EAGAIN."
        "bastle run --pids 2048 -- CMD";
    LimitDisk "BST-LIM-004" "disk limit"
        "The run tried to add more bytes to the workspace, or to its private HOME and TMPDIR, than its limit."
        "bastle run --disk 20G -- CMD";
    LimitFiles "BST-LIM-005" "file-count limit"
        "The run tried to create, change or remove more files than limits.files or limits.inodes allow."
        "Raise limits.files or limits.inodes in a trusted policy layer.";
    LimitBytes "BST-LIM-006" "bytes-written limit"
        "The run wrote as many bytes to workspace files as limits.bytesWritten allows."
        "Raise limits.bytesWritten in a trusted policy layer.";
    LimitOutput "BST-LIM-007" "output limit"
        "The run printed more than limits.output; the rest was discarded and the run went on."
        "Raise limits.output in a trusted policy layer.";
    LimitOpenFiles "BST-LIM-008" "open-file limit"
        "A process tried to open more descriptors than limits.openFiles; the kernel answered EMFILE."
        "Raise limits.openFiles in a trusted policy layer.";
    LimitUnheld "BST-LIM-009" "a limit cannot be held on this host"
        "The policy sets a limit for which this host offers no mechanism (usually: no cgroup that this user may write)."
        "bastle doctor shows why; delegate cgroups (systemd-run --user --scope -p Delegate=yes bastle ...), or give the limit up by name: --waive LIMIT.";
    LimitInvalid "BST-LIM-010" "impossible limit"
        "A limit is outside the range that can be held."
        "The message names the range.";
    LimitLost "BST-LIM-011" "a limit was lost"
        "A cgroup held a limit when the run was started, and its value was changed, its controller was taken away or the run was moved out of it meanwhile. Without the limit the run does not go on: everything in it was killed."
        "Find out what else writes to the cgroups of this host. bastle doctor shows which group is used; one that is delegated (Delegate=yes) is left alone by systemd.";
    PolicySyntax "BST-POL-001" "policy is not valid JSON"
        "The policy file cannot be parsed, has a duplicate key, is nested too deeply, is not UTF-8 or is larger than 64 KiB."
        "The message points at the place; bastle policy check FILE checks again.";
    PolicySchema "BST-POL-002" "policy does not follow the schema"
        "A key is unknown, a value has the wrong type, or a path, host or rule is malformed."
        "bastle policy schema prints the schema; editors use it for completion.";
    PolicyTest "BST-POL-003" "an in-file policy test failed"
        "A tests entry of the policy expects another decision than the effective policy gives."
        "bastle why TARGET shows the rule that decides.";
    PolicyUnreadable "BST-POL-004" "policy file cannot be read"
        "A policy file that was named or found cannot be read. bastle does not fall back to a default."
        "Fix its permissions or name another with --policy.";
    PolicyReference "BST-POL-005" "unknown preset or group"
        "extends or --preset names something this build does not have."
        "bastle policy presets lists them.";
    PolicyCommandRule "BST-POL-006" "command rule too wide"
        "Rules such as bash, bash(*) or * would allow anything and are refused."
        "Name the commands, e.g. cargo test *.";
    WorkspaceInvalid "BST-WS-001" "unusable workspace"
        "The workspace does not exist, is not a directory, cannot be read, is a symlink, or is a directory that must not be handed over whole (/, the home directory, /etc, ...)."
        "Start in a project directory, or name one with --workspace-dir.";
    WorkspaceLinks "BST-WS-002" "workspace file with a hard link elsewhere"
        "A file in the workspace has more than one hard link; writing it would write a file outside."
        "Break the link: cp FILE FILE.new && mv FILE.new FILE.";
    WorkspaceIo "BST-WS-003" "the copy of the workspace cannot be read or written"
        "A call of the system failed while the agent's copy, a snapshot or the store was read or written. What was finished before is kept; what was under way is finished or undone at the next start."
        "Check free space and permissions of the state directory; the message names the place.";
    WorkspaceDamaged "BST-WS-004" "stored state is damaged"
        "A stored manifest, record or content does not have the digest or the form it must have, so nothing is built on it."
        "bastle snapshots RUN lists what can be read; check the disk.";
    WorkspaceUnexported "BST-WS-005" "work would be lost"
        "The agent's copy holds changes that were neither applied nor exported."
        "bastle diff RUN, then bastle apply RUN or bastle export RUN; to throw it away: bastle rm RUN --discard DIGEST with the digest of the message.";
    WorkspaceBusy "BST-WS-006" "the workspace is in use"
        "Another process of bastle works on this run's copy, or the run is still alive."
        "Wait for the end of the run; bastle ps lists those that live.";
    WorkspaceMissing "BST-WS-007" "no such copy or snapshot"
        "No run of that name has a copy in the state directory, or it has no snapshot of that number or name."
        "bastle ls; bastle snapshots RUN";
    WorkspaceOverlay "BST-WS-008" "the workspace cannot be the lower side of an overlay"
        "Mode overlay shows the project itself below a layer for the agent's changes. The kernel shows one file system per layer and brings up only files of the project's own user and group."
        "bastle run --workspace copy";
    WorkspaceGit "BST-WS-010" "git repository cannot be used safely"
        "The project's .git points elsewhere, is stored in a way bastle does not read, a hardened git call failed, or a git configuration that names hosts to push to cannot be read. Nothing was changed."
        "The message names the cause. A copy needs a repository that bastle reads: bastle run --workspace in-place -- CMD works without one.";
    WorkspaceConflict "BST-WS-011" "the project changed since the copy was made"
        "A file was changed both by the agent and on the host in ways that do not merge. Nothing was written."
        "Look at the conflicts, then bastle apply --theirs (the agent's version) or --ours (yours), or --branch NAME.";
    WorkspaceApproval "BST-WS-012" "changes need approval"
        "Changes that would run on the host, or that cannot be reviewed as text, are left out until their content is approved."
        "bastle diff shows them; bastle apply --approve HASH takes exactly that content.";
    WorkspaceApply "BST-WS-013" "changes could not be applied"
        "Writing, committing, exporting or undoing failed; the host tree is as before, or is made so by the next bastle command."
        "The message names the path and the cause.";
    GrantRefused "BST-WS-020" "path cannot be granted to a living run"
        "The path holds credentials or bastle's own state, belongs to the kernel, is the workspace or part of another grant, leads through a symlink, is no file or directory, or would escape a limit of the run."
        "The message names the reason; name the exact directory or file that is needed.";
    GrantFailed "BST-WS-021" "a grant could not be carried out"
        "The path was allowed, but mounting it in the sandbox or taking it out failed, or it changed between the judgement and the mount. After a failed grant nothing of it is inside."
        "Try again; bastle ps shows what is granted.";
    GrantMissing "BST-WS-022" "no such grant"
        "The living run has no grant of that path."
        "bastle ps --json lists the grants of every living run.";
    CacheUnusable "BST-WS-030" "a cache cannot be used"
        "A named cache could not be lent to the run or merged: its directory cannot be read or written, or the policy shows something else in its place."
        "The message names the path and the cause; leave the cache out, or remove it: bastle cache rm NAME";
    CacheMissing "BST-WS-031" "no such cache"
        "No cache of that name exists, or the run left nothing to merge."
        "bastle cache ls";
    FenceUserns "BST-FENCE-001" "user namespaces are not available"
        "The kernel refused a new user namespace: AppArmor (Ubuntu 24.04), a sysctl, a container's own filter, or the limit is used up."
        "bastle doctor prints the exact cause and fix.";
    FenceStep "BST-FENCE-002" "a step of building the fence failed"
        "A control could not be set up, so the agent was not started. The message names the control and the cause."
        "bastle doctor";
    FenceLandlock "BST-FENCE-003" "Landlock is missing or too old"
        "The plan needs a Landlock ABI that this kernel does not have."
        "Use Linux 6.12 or newer with Landlock in the lsm= list.";
    FenceProbe "BST-FENCE-004" "a probe did not prove its guarantee"
        "After the fence was built, a probe inside it succeeded where it must fail, or could not tell. The agent was not started."
        "This is a defect of the host or of bastle: bastle doctor, then report it with the audit record.";
    FenceIdmap "BST-FENCE-005" "the workspace's file system cannot be mapped"
        "Started as root, bastle gives the agent an unprivileged uid and maps the workspace to it; this file system has no idmapped mounts."
        "Start bastle as the owner of the workspace instead of root.";
    FenceNested "BST-FENCE-006" "already inside a fence"
        "AGENT_IN_SANDBOX=1 is set: bastle does not nest."
        "Run the command directly; the outer fence holds for it.";
    FenceBackend "BST-FENCE-007" "backend not available"
        "The backend that was asked for does not exist in this build or on this host."
        "bastle doctor lists the backends.";
    FenceLost "BST-FENCE-008" "a process of bastle ended unexpectedly"
        "The spawner or init went away while the run was alive; the whole run was killed."
        "Look at the message for its last words; check memory and kill -9 by others.";
    BackendUnsupported "BST-FENCE-009" "the backend cannot do this"
        "Not every backend has every operation, and not every run: one that works in the project itself has no tree of its own to keep or bring back. What is missing is refused, never half done."
        "The message says what is missing; bastle run --workspace copy gives a run a tree of its own.";
    HostSoft "BST-HOST-001" "the host backend is not a fence"
        "SOFT_SANDBOX=true: nothing is enforced by the kernel. Shells, network tools and recursive deletion are refused by name only."
        "Use the native backend. To insist: bastle run --backend host --i-understand-this-is-not-a-fence -- CMD";
    HostTool "BST-HOST-002" "tool disabled without a fence"
        "Without a kernel fence, shells, network tools and recursive deletion are off."
        "Use the native backend.";
    AuditWrite "BST-AUD-001" "audit record cannot be written"
        "No record, no effect: the run was not started, or was stopped, because the audit log could not be written or synced."
        "Free disk space or fix the permissions of the state directory.";
    AuditTampered "BST-AUD-002" "audit log was changed"
        "The hash chain or a signature does not fit: a record was edited, removed, reordered or cut off."
        "Keep the file as evidence; the message names the first bad record.";
    AuditMissing "BST-AUD-003" "no such audit log"
        "No run of that name has an audit log in the state directory."
        "bastle audit ls";
    UsageArgument "BST-USE-001" "wrong use of the command line"
        "An argument is missing, unknown or malformed."
        "bastle help COMMAND";
    UsageEnv "BST-USE-002" "environment variable refused"
        "A variable name is malformed or is one that makes programs load code (LD_*, BASH_ENV, NODE_OPTIONS, ...)."
        "Set such variables inside, in a script of the workspace.";
    StateDir "BST-STA-001" "state directory unusable"
        "The directory for audit logs and keys cannot be created or written."
        "Set XDG_STATE_HOME to a writable directory.";
    ApiRequest "BST-API-001" "request not understood"
        "A request to the daemon is no JSON of the form this address takes: a field is unknown, missing, doubled or of another type, or a parameter cannot be read. Nothing was done."
        "The message names the field; GET /api/v1/openapi.json has every form.";
    ApiUnauthorized "BST-API-002" "not authenticated"
        "The request carries no token, or one that is unknown, expired or revoked. Nothing was done."
        "Send Authorization: Bearer TOKEN; bastle token create makes one.";
    ApiForbidden "BST-API-003" "not allowed for this token"
        "The token is good, but its role or its scope does not allow this. Nothing was done."
        "Ask an admin for a token of the role that the message names: bastle token create --role ROLE";
    ApiOrigin "BST-API-004" "host or origin refused"
        "The request was addressed to a name that is not the daemon's, or was made by a page of another site. Browsers are kept out this way, whatever name leads to the address."
        "Use the address that bastle serve printed; name others with --allow-host and --allow-origin.";
    ApiMediaType "BST-API-005" "body is not application/json"
        "Requests with a body must say content-type: application/json."
        "Add the header content-type: application/json.";
    ApiTooLarge "BST-API-006" "request too large"
        "The body or a part of the request is larger than is read. Nothing was done."
        "Split the request.";
    ApiRate "BST-API-007" "too many requests"
        "More requests or open streams came from this token or peer than are served."
        "Wait as long as the retry-after header says.";
    ApiMissing "BST-API-008" "no such thing"
        "Nothing has that address or name."
        "GET /api/v1/openapi.json lists the addresses.";
    ApiMethod "BST-API-009" "method not served here"
        "The address exists, but not for this method."
        "The allow header names the methods.";
    ApiPath "BST-API-010" "path outside the run's tree"
        "A path is absolute, leads upwards, goes through a symlink or is none. Files of a run are named from the root of its tree."
        "Name the path as the listing does: GET /api/v1/runs/RUN/files";
    ApiBusy "BST-API-011" "the daemon cannot serve this now"
        "The request took longer than is waited for, or the daemon is ending."
        "Try again.";
    ApiInternal "BST-API-012" "the daemon failed"
        "An error that is not the request's. The daemon's own log has the details."
        "Look at the log: journalctl -u bastle-serve, or what bastle serve prints.";
    ApiConflict "BST-API-013" "not possible in this state"
        "What was asked for does not fit the state that the run, batch or question is in. Nothing was done."
        "bastle ps -a shows the states.";
    ApiUnreachable "BST-API-014" "the daemon cannot be reached"
        "No daemon answers at that address."
        "bastle daemon start, or name the address: BASTLE_HOST=unix:///PATH or https://HOST:PORT";
    ApiAnswer "BST-API-015" "unexpected answer"
        "What answered is no bastle daemon, or one of another version."
        "Check the address; bastle version and GET /api/v1/version tell the versions.";
    ApiListen "BST-API-016" "cannot listen"
        "The address or socket of the daemon cannot be used: it is taken, not permitted, or reachable by others without TLS."
        "The message names the address; bastle serve --help lists the options.";
    ApiConfig "BST-API-017" "settings of the daemon cannot be used"
        "serve.json is no JSON of the expected form, or a value in it is refused. Nothing is served with settings that were not understood."
        "The message names the field.";
    StateBusy "BST-STA-002" "another daemon has this state directory"
        "One daemon keeps the records of one state directory. A second would start runs twice."
        "bastle daemon status; to replace it: bastle daemon stop";
    StateDamaged "BST-STA-003" "the daemon's records cannot be used"
        "The database is torn, is no database, or was written by a newer version. Nothing was changed in it."
        "Use the version that wrote it, or put a backup in its place. Runs live on without the daemon.";
    StateFailed "BST-STA-004" "the daemon's records could not be written"
        "A write or a sync failed. What was not confirmed did not happen; until the daemon is started again it changes nothing, because after a failed sync nobody knows what is on the disk."
        "Free disk space, then: bastle daemon stop && bastle daemon start";
    RunMissing "BST-RUN-001" "no such run"
        "No run of that name is known here."
        "bastle ps -a";
    RunState "BST-RUN-002" "the run is not in a state for that"
        "A run that ended cannot be stopped or paused, one that lives cannot be removed."
        "bastle inspect RUN shows where it is.";
    RunConflict "BST-RUN-003" "another run writes there"
        "Two runs that live may not write the same place. The message names the one that has it."
        "Wait for it, stop it, work on a copy (--workspace copy), or queue behind it: bastle spawn --on-conflict queue";
    RunKey "BST-RUN-004" "the key was used for another request"
        "A request that is sent again under its key gets the first answer. A different request needs a key of its own."
        "Leave --key out, or choose another.";
    RunChild "BST-RUN-005" "a run may not start this child"
        "A child lives within what its parent may do: its policy, its budget, a depth of three and sixteen living children."
        "Ask for less, or let a person start it.";
    RunCrowd "BST-RUN-006" "too many runs"
        "One request holds at most 1000 runs, and the queue has an end."
        "Send fewer, or wait until some have ended: bastle ps";
    ApprovalMissing "BST-APR-001" "no such question"
        "No question of that number was asked."
        "bastle approvals ls";
    ApprovalStale "BST-APR-002" "the question is not open any more"
        "It was answered, it expired, its run ended, or it asks something else than what was looked at. An answer holds for exactly the request it was given to."
        "bastle approvals ls shows what is open.";
    TokenRefused "BST-TOK-001" "not allowed for this caller"
        "The token's role, its verbs or its runs do not cover that."
        "bastle token create --role ROLE makes one that does.";
    TokenMissing "BST-TOK-002" "no such token"
        "No token has that id."
        "bastle token ls";
    TokenCeiling "BST-TOK-003" "beyond the authority ceiling"
        "A request only narrows what its sender was given. This one asks for something that the daemon's configuration does not grant, that the ceiling of its token, its profile or the daemon does not cover, or that only an admin, the configuration or a profile may state."
        "bastle whoami shows the ceiling. An admin grants more: in a policy file or a profile, and where the ceiling is in the way with bastle token create --role operator and --root, --profile, --preset, --allow-net, --secret, --net, --mode or --limit.";
    ProfileMissing "BST-PRO-001" "no such profile"
        "No profile of that name is kept here or built in."
        "bastle profile ls";
    DaemonFailed "BST-DMN-001" "the daemon cannot be started, stopped or set up"
        "It ended before it was ready, it does not end, or its files cannot be written."
        "The message names its log; bastle daemon status";
    ContextMissing "BST-CTX-001" "no such context"
        "No daemon is known by that name."
        "bastle context ls";
    SpawnCaller "BST-SPAWN-001" "caller not named by the spawner's ceiling"
        "The spawner serves only users that its root-owned ceiling file names. Nothing was done."
        "Have an administrator add the user to /etc/bastle/ceiling.json and reload: systemctl reload bastle-spawner. Without the daemon: BASTLE_SPAWNER= bastle run -- CMD";
    SpawnRate "BST-SPAWN-002" "too many requests to the spawner"
        "The caller's requests come faster than the rate of the ceiling file, or too many of its connections wait without a word. Nothing was done."
        "Wait as long as the message says, or raise rate in the ceiling file.";
    SpawnWorkers "BST-SPAWN-003" "no room for another run"
        "As many runs live as max_workers of the ceiling file allows, for this caller or for all. Nothing was done."
        "Wait until one has ended: bastle ps; or raise max_workers in the ceiling file.";
    SpawnPath "BST-SPAWN-004" "path outside the spawner's ceiling"
        "A path of the plan lies neither below the caller's roots in the ceiling file nor, for reading, in a place of the system, or the caller itself has no right to it. The run was not started."
        "Work below one of the roots that the message names, or add one to the ceiling file.";
    SpawnLimit "BST-SPAWN-005" "limit missing or above the spawner's ceiling"
        "The ceiling file bounds a limit that the plan sets higher, leaves out or gives up. The run was not started."
        "Set it at or below the value of the message, e.g. bastle run --mem 4G -- CMD";
    SpawnVersion "BST-SPAWN-006" "the spawner speaks another version"
        "The daemon and this program were built from different versions. Nothing was done."
        "Install one version of both and restart the daemon: systemctl restart bastle-spawner";
    SpawnFrame "BST-SPAWN-007" "request to the spawner not understood"
        "The first frame of a connection is larger than a frame, malformed, or no request that the daemon knows. Nothing was done."
        "Use the bastle command line, or the frames that docs/spawner.md describes.";
    SpawnCeiling "BST-SPAWN-008" "ceiling file refused"
        "The spawner's ceiling file is missing, is not valid, or could be changed by somebody else than its owner. At a reload the old one stays in force; at a start nothing is served."
        "The message names the place: owner root, mode 0644, at most 64 KiB of JSON as in packaging/ceiling.json.";
    SpawnSocket "BST-SPAWN-009" "socket of the spawner cannot be used"
        "The spawner cannot listen, because another one serves there or the place cannot be written; or nobody answers on the socket that was named."
        "systemctl status bastle-spawner; BASTLE_SPAWNER= bastle run -- CMD runs without the daemon.";
    SpawnKind "BST-SPAWN-010" "kind of run not allowed by the spawner's ceiling"
        "The ceiling file does not allow the caller this backend, or to give limits up. The run was not started."
        "Run with the native backend and without --waive, or change backends or allow_unconfined in the ceiling file.";
}

/// The exit codes of `run` that are bastle's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Killed at the wall-time limit.
    Timeout = 124,
    /// bastle itself failed: bad policy, no fence.
    Failed = 125,
    /// The program cannot be executed.
    CannotInvoke = 126,
    /// The program was not found.
    NotFound = 127,
    /// With `--fail-on-deny`: something was denied.
    Denied = 77,
    /// A budget or quota stopped the run.
    Budget = 75,
}

impl Code {
    /// The code from its text, in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|code| code.info().code.eq_ignore_ascii_case(text))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().code)
    }
}
