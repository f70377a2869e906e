//! `bastle token`: who else may speak to the daemon, and what they may do.
use super::ceiling::{self, CeilingArgs};
use super::stats::age;
use crate::client::{Daemon, part, short};
use crate::context::{Context, Ended, Format};
use crate::render::{Paint, Table, now_ms, timestamp};
use bastle_contract::{Code, Fault};
use bastle_control::fleet::{PrincipalKind, Role, Token};
use serde_json::{Value, json};

/// Arguments of `token`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  (umask 077; bastle token create --role viewer --expires 30d > ~/.config/bastle/view.token)
  bastle token create --role operator --kind program --run-prefix ci- --root /srv/ci --limit timeout=1h --max-runs 4
  bastle token revoke k3v9

The secret is printed once, alone, on standard output; only its hash is kept.
A token only narrows: what its ceiling does not state is as the daemon's configuration grants it (bastle whoami shows it).
Roles: viewer reads; operator also starts and stops; approver also answers questions; admin everything.
Exit codes: 0 ok, 1 failed, 2 usage, 3 no such token, 4 not permitted.")]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    verb: TokenVerb,
}

#[derive(Debug, clap::Subcommand)]
enum TokenVerb {
    /// Make a token and print its secret, once
    Create {
        /// What it may do
        #[arg(long, value_enum)]
        role: RoleWord,
        /// Who uses it: a program never approves what its own runs ask for
        #[arg(long, value_enum, default_value = "person")]
        kind: KindWord,
        /// How long it holds, such as 12h or 30d [default: until it is revoked]
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
        /// Only for runs whose names begin so
        #[arg(long, value_name = "PREFIX")]
        run_prefix: Option<String>,
        /// What it is for
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
        #[command(flatten)]
        ceiling: Box<CeilingArgs>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List tokens; never their secrets
    #[command(visible_alias = "list")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Take a token back, at once
    Revoke {
        /// Its id
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The roles that a person can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RoleWord {
    /// Reads
    Viewer,
    /// Also starts and stops runs
    Operator,
    /// Also answers questions
    Approver,
    /// Everything
    Admin,
}

/// Who uses a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum KindWord {
    /// A person
    Person,
    /// A program, such as an agent that leads others
    Program,
}

impl RoleWord {
    /// The role itself.
    pub(crate) fn role(self) -> Role {
        match self {
            Self::Viewer => Role::Viewer,
            Self::Operator => Role::Operator,
            Self::Approver => Role::Approver,
            Self::Admin => Role::Admin,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Approver => "approver",
            Self::Admin => "admin",
        }
    }
}

impl TokenArgs {
    /// Whether JSON was asked for.
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            TokenVerb::Create { json, .. } | TokenVerb::Ls { json } | TokenVerb::Revoke { json, .. } => *json,
        }
    }
}

/// Does it.
pub(crate) fn run(args: &TokenArgs, cx: &Context) -> Ended {
    match &args.verb {
        TokenVerb::Create {
            role,
            kind,
            expires,
            run_prefix,
            note,
            ceiling,
            json,
        } => {
            let seconds = expires.as_deref().map(seconds).transpose()?;
            let kind = match kind {
                KindWord::Person => "person",
                KindWord::Program => "program",
            };
            let wish = json!({
                "role": role.word(), "kind": kind, "note": note, "expires_s": seconds, "prefix": run_prefix,
                "ceiling": ceiling.form()?,
            });
            create(&wish, (*json).into(), cx)
        }
        TokenVerb::Ls { json } => ls((*json).into(), cx),
        TokenVerb::Revoke { id, json } => {
            let daemon = Daemon::open()?;
            daemon.delete(&format!("/api/v1/tokens/{}", part(id)))?;
            if *json {
                cx.print_json(&json!({ "schema": "bastle.token-revoked/v1", "id": id }))?;
            } else {
                cx.note(&format!("{} {} is revoked", cx.err.tick(), short(id)));
            }
            Ok(0)
        }
    }
}

fn create(wish: &Value, format: Format, cx: &Context) -> Ended {
    let daemon = Daemon::open()?;
    let made = daemon.post("/api/v1/tokens", wish)?;
    let secret: String = daemon.read(made["secret"].clone())?;
    let token: Token = daemon.read(made["token"].clone())?;
    if format == Format::Json {
        cx.print_json(&json!({ "schema": "bastle.token/v1", "token": as_value(&token), "secret": secret }))?;
        return Ok(0);
    }
    let until = token.expires_ms.map_or_else(
        || "until it is revoked".to_owned(),
        |ms| format!("until {}", timestamp(ms)),
    );
    cx.note(&format!(
        "{} token {} for {}, {until}; the secret below is not shown again",
        cx.err.tick(),
        short(&token.id),
        token.role.word()
    ));
    if !matches!(token.role, Role::Admin | Role::Viewer) {
        for line in ceiling::lines(&token.ceiling, "the daemon's default") {
            cx.note(&format!("  {line}"));
        }
    }
    cx.print(&format!("{}\n", crate::render::clean(&secret)))?;
    Ok(0)
}

fn ls(format: Format, cx: &Context) -> Ended {
    let daemon = Daemon::open()?;
    let tokens: Vec<Token> = daemon.list("/api/v1/tokens")?;
    if format == Format::Json {
        let listed: Vec<Value> = tokens.iter().map(as_value).collect();
        cx.print_json(&json!({ "schema": "bastle.tokens/v1", "tokens": listed }))?;
        return Ok(0);
    }
    let now = now_ms();
    let mut table = Table::new(&["ID", "ROLE", "STATE", "RUNS", "MADE", "BY", "NOTE"]);
    for token in &tokens {
        let (state, paint) = match (token.revoked_ms, token.expires_ms) {
            (Some(_), _) => ("revoked".to_owned(), Paint::Dim),
            (None, Some(until)) if until <= now => ("expired".to_owned(), Paint::Dim),
            (None, Some(until)) => (format!("until {}", timestamp(until)), Paint::Plain),
            (None, None) => ("good".to_owned(), Paint::Good),
        };
        let runs = match (&token.run, &token.prefix) {
            (Some(run), _) => run.to_string(),
            (None, Some(prefix)) => format!("{prefix}*"),
            (None, None) => "all".to_owned(),
        };
        let role = match token.kind {
            PrincipalKind::Program => format!("{} (program)", token.role.word()),
            PrincipalKind::LocalPerson | PrincipalKind::TokenPerson | PrincipalKind::Automatic => {
                token.role.word().to_owned()
            }
        };
        table.row([
            (&token.id, Paint::Bold),
            (&role, Paint::Plain),
            (&state, paint),
            (&runs, Paint::Plain),
            (&age(token.created_ms), Paint::Plain),
            (&token.maker, Paint::Plain),
            (&token.note, Paint::Plain),
        ]);
    }
    if table.is_empty() {
        cx.note("no token was made; bastle token create --role viewer");
        return Ok(0);
    }
    cx.print(&table.render(cx.out))?;
    Ok(0)
}

fn as_value(token: &Token) -> Value {
    json!({
        "id": token.id, "kind": token.kind, "role": token.role, "note": token.note, "maker": token.maker,
        "created": timestamp(token.created_ms),
        "expires": token.expires_ms.map(timestamp), "revoked": token.revoked_ms.map(timestamp),
        "run_prefix": token.prefix, "verbs": token.verbs, "run": token.run, "ceiling": token.ceiling,
    })
}

/// A time such as `30d` in seconds.
fn seconds(text: &str) -> Result<u64, Fault> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = match &text[digits..] {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        "w" => Some(604_800),
        _ => None,
    };
    let count = text[..digits].parse::<u64>().ok().filter(|count| *count > 0);
    match (count, unit) {
        (Some(count), Some(unit)) if count <= 315_360_000 / unit => Ok(count * unit),
        _ => Err(Fault::new(
            Code::UsageArgument,
            format!("--expires {} is not understood", short(text)),
            "a number and s, m, h, d or w, at most ten years",
        )
        .help("--expires 30d")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_none_or_longer_than_ten_years_is_refused() {
        for bad in [
            "",
            "d",
            "0d",
            "3",
            "3x",
            "-1d",
            "99999999999999999999d",
            "11w ",
            "4000d",
            "1é",
        ] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert_eq!(
            (seconds("30d").unwrap(), seconds("90s").unwrap()),
            (2_592_000, 90)
        );
    }
}
