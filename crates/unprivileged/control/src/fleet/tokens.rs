//! Tokens: `bst_<id>_<secret>`. Only a digest of the whole is kept; it is compared in constant time.
//!
//! **Trust:** the text of a token comes from anybody who can connect. It is bounded before it is looked at.
use super::principals::{MOST_LINKS, TOKEN, ancestors};
use super::words::{allow, now_ms, role, run_id, verbs};
use super::{Caller, Inner, PrincipalKind, Role, Token, TokenWish, Verb, rows};
use crate::place::settled;
use crate::store::{Stop, int, uint};
use bastle_contract::{AbsPath, Code, Fault, RunId};
use bastle_policy::AuthorityCeiling;
use rusqlite::{Connection, Row, params};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

const PREFIX: &str = "bst_";
const ID: usize = 10;
/// 32 bytes in base 32.
const SECRET: usize = 52;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const COLUMNS: &str =
    "id, role, note, maker, created_ms, expires_ms, revoked_ms, prefix, verbs, run, hash, kind, ceiling";
/// The note of the token of the local command line.
const LOCAL: &str = "local command line";

/// Random characters of the alphabet.
pub(super) fn random_word(length: usize) -> Result<String, String> {
    let mut bytes = vec![0; length];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    // 256 is a multiple of 32: every character is as likely as any other.
    Ok(bytes
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(byte % 32)]))
        .collect())
}

/// Makes a token in a transaction; gives it and its secret.
pub(super) fn insert(db: &Connection, maker: &str, wish: &TokenWish) -> Result<(Token, String), Stop> {
    let random =
        |length| random_word(length).map_err(|why| Fault::new(Code::StateDir, "cannot make a token", why));
    let id = random(ID)?;
    let secret = format!("{PREFIX}{id}_{}", random(SECRET)?);
    let now = super::words::steady_ms();
    let expires = wish
        .lasts
        .map(|lasts| now.saturating_add(u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX)));
    let allowed = wish.verbs.as_ref().map(super::words::text).transpose()?;
    let stated = Some(&wish.ceiling).filter(|ceiling| !ceiling.is_empty());
    let ceiling = stated.map(super::words::text).transpose()?;
    db.prepare_cached(
        "INSERT INTO tokens(id, hash, role, note, maker, created_ms, expires_ms, prefix, verbs, run, kind, ceiling) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute(params![
        id,
        blake3::hash(secret.as_bytes()).as_bytes().as_slice(),
        wish.role.word(),
        wish.note,
        maker,
        int(now),
        expires.map(int),
        wish.prefix,
        allowed,
        wish.run.as_ref().map(RunId::as_str),
        wish.kind.word(),
        ceiling,
    ])?;
    let token = Token {
        id,
        kind: wish.kind,
        role: wish.role,
        note: wish.note.clone(),
        maker: maker.to_owned(),
        created_ms: now,
        expires_ms: expires,
        revoked_ms: None,
        prefix: wish.prefix.clone(),
        verbs: wish.verbs.clone(),
        run: wish.run.clone(),
        ceiling: wish.ceiling.clone(),
    };
    Ok((token, secret))
}

pub(super) fn create(inner: &Inner, caller: &Caller, wish: &TokenWish) -> Result<(Token, String), Fault> {
    allow(caller, Verb::Administer, "tokens")?;
    let bad = |why: &str| Err(Fault::new(Code::UsageArgument, "unusable wish for a token", why));
    if wish.note.len() > 256 || wish.note.chars().any(char::is_control) {
        return bad("a note has at most 256 bytes and no control characters");
    }
    if (wish.role == Role::Run) != wish.run.is_some() {
        return bad("the role run, and only it, belongs to one run");
    }
    if wish
        .prefix
        .as_ref()
        .is_some_and(|prefix| RunId::try_from(prefix.clone()).is_err())
    {
        return bad("a prefix is the beginning of a name of a run");
    }
    if wish.lasts.is_some_and(|lasts| lasts.is_zero()) {
        return bad("it would be over at once");
    }
    if matches!(wish.role, Role::Admin | Role::Run) && !wish.ceiling.is_empty() {
        return bad("an admin has no ceiling, and a run has the ceiling of the caller that started it");
    }
    within_maker(caller, wish)?;
    if let (Some(prefix), Some(run)) = (&wish.prefix, &wish.run)
        && !run.as_str().starts_with(prefix)
    {
        return bad("the prefix of a run's own token begins the name of the run");
    }
    let ceiling = match &wish.run {
        Some(run) => ceiling_for(inner, caller, run)?,
        None => wish
            .ceiling
            .clone()
            .settle_roots(real_root)?
            .meet(&caller.ceiling),
    };
    let prefix = match &wish.run {
        Some(run) => prefix_for(inner, caller, wish, run)?,
        None => wish.prefix.clone(),
    };
    let wish = &TokenWish {
        ceiling,
        prefix,
        ..wish.clone()
    };
    let made = inner.store.write(|db| {
        if let Some(run) = &wish.run
            && rows::phase(db, run)?.is_none()
        {
            return Err(super::words::missing(run.as_str()).into());
        }
        // A program, or a run, makes no person.
        let program = caller.kind == PrincipalKind::Program || wish.role == Role::Run;
        let wish = &TokenWish {
            kind: if program {
                PrincipalKind::Program
            } else {
                wish.kind
            },
            ..wish.clone()
        };
        let made = insert(db, &caller.id, wish)?;
        let data = serde_json::json!({"id": made.0.id, "role": wish.role, "by": caller.id});
        rows::own_event(db, None, "token", &data, now_ms())?;
        Ok(made)
    })?;
    inner.told();
    Ok(made)
}

/// The ceiling of a run's own token: of an admin's run what its policy gives it; of others it is in the launch.
fn ceiling_for(inner: &Inner, caller: &Caller, run: &RunId) -> Result<AuthorityCeiling, Fault> {
    let spec = inner.store.read(|db| rows::spec(db, run))?;
    match spec.get().bounds {
        Some(_) => Ok(AuthorityCeiling::default()),
        None => super::entry::of_unbounded(inner, caller, &spec),
    }
}

/// The prefix of a run's own token: as the wish says, but never beyond its maker's nor beyond that of whoever started the
/// run. All of them begin the name of this run or hold it to nothing, so the longest is within the others.
fn prefix_for(
    inner: &Inner,
    caller: &Caller,
    wish: &TokenWish,
    run: &RunId,
) -> Result<Option<String>, Fault> {
    let starter = inner.store.read(|db| {
        let lineage = ancestors(db, run)?;
        let starter = lineage.first().and_then(|own| own.caller.strip_prefix(TOKEN));
        let found = starter.map(|id| find(db, id)).transpose()?.flatten();
        Ok(found.and_then(|(token, _)| token.prefix))
    })?;
    let all = [wish.prefix.clone(), caller.prefix.clone(), starter];
    Ok(all.into_iter().flatten().max_by_key(String::len))
}

/// A token is never given more than its maker has.
fn within_maker(maker: &Caller, wish: &TokenWish) -> Result<(), Fault> {
    let verbs = match (&maker.verbs, &wish.verbs) {
        (None, _) => true,
        (Some(own), Some(asked)) => asked.is_subset(own),
        (Some(_), None) => false,
    };
    // Each of the two, where both are named: a prefix within the maker's must not carry a run that is not.
    let runs = maker.prefix.as_deref().is_none_or(|own| {
        let asked = [wish.prefix.as_deref(), wish.run.as_ref().map(RunId::as_str)];
        let mut asked = asked.into_iter().flatten().peekable();
        asked.peek().is_some() && asked.all(|asked| asked.starts_with(own))
    });
    if verbs && runs && wish.role <= maker.role {
        return Ok(());
    }
    Err(Fault::new(
        Code::TokenRefused,
        format!("{} may not make this token", maker.id),
        "it would have a role, verbs or runs that its maker does not have",
    ))
}

/// Where a root of a ceiling really is. One that is not there would hold nothing, or something else later.
fn real_root(path: &AbsPath) -> Result<AbsPath, Fault> {
    let unusable = |why: String| {
        Fault::new(
            Code::UsageArgument,
            format!("the root {path} cannot be used"),
            why,
        )
    };
    if !path.as_path().is_dir() {
        return Err(unusable("it is no directory".to_owned()));
    }
    AbsPath::from_path(&settled(path.as_path())).map_err(|error| unusable(error.to_string()))
}

fn read(row: &Row<'_>) -> Result<Token, Stop> {
    let run: Option<String> = row.get(9)?;
    Ok(Token {
        id: row.get(0)?,
        // An unknown word is of a newer program: then it is the kind that may less.
        kind: PrincipalKind::of(&row.get::<_, String>(11)?).unwrap_or(PrincipalKind::Program),
        role: role(&row.get::<_, String>(1)?)?,
        note: row.get(2)?,
        maker: row.get(3)?,
        created_ms: uint(row.get(4)?),
        expires_ms: row.get::<_, Option<i64>>(5)?.map(uint),
        revoked_ms: row.get::<_, Option<i64>>(6)?.map(uint),
        prefix: row.get(7)?,
        verbs: verbs(row.get(8)?)?,
        run: run.map(run_id).transpose()?,
        ceiling: stated(row.get(12)?)?,
    })
}

/// A ceiling from its column; tokens that were made before there was one state nothing.
fn stated(text: Option<String>) -> Result<AuthorityCeiling, Stop> {
    text.map_or_else(
        || Ok(AuthorityCeiling::default()),
        |text| super::words::json(&text),
    )
}

fn find(db: &Connection, id: &str) -> Result<Option<(Token, Vec<u8>)>, Stop> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM tokens WHERE id = ?1"))?;
    let mut rows = statement.query([id])?;
    match rows.next()? {
        Some(row) => Ok(Some((read(row)?, row.get(10)?))),
        None => Ok(None),
    }
}

pub(super) fn all(inner: &Inner) -> Result<Vec<Token>, Fault> {
    inner.store.read(|db| {
        let mut statement = db.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM tokens ORDER BY created_ms DESC, id"
        ))?;
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(read(row)?);
        }
        Ok(found)
    })
}

pub(super) fn revoke(inner: &Inner, caller: &Caller, id: &str) -> Result<Token, Fault> {
    allow(caller, Verb::Administer, "tokens")?;
    let token = inner.store.write(|db| {
        let Some((mut token, _)) = find(db, id)? else {
            return Err(
                Fault::new(Code::TokenMissing, format!("there is no token {id}"), "")
                    .help("bastle token ls")
                    .into(),
            );
        };
        let now = now_ms();
        token.revoked_ms.get_or_insert(now);
        db.prepare_cached("UPDATE tokens SET revoked_ms = coalesce(revoked_ms, ?2) WHERE id = ?1")?
            .execute(params![id, int(now)])?;
        let data = serde_json::json!({"id": id, "revoked": true, "by": caller.id});
        rows::own_event(db, None, "token", &data, now)?;
        Ok(token)
    })?;
    inner.told();
    Ok(token)
}

/// Revoked, or past its time.
fn is_over(token: &Token) -> bool {
    token.revoked_ms.is_some()
        || token
            .expires_ms
            .is_some_and(|expires| expires <= super::words::steady_ms())
}

/// Whether a token is good. The own token of a run is only as long as the one that made it is: nobody keeps by a run what was
/// taken from them. A token that an admin made for somebody holds by itself.
fn is_good(db: &Connection, token: &Token) -> Result<bool, Stop> {
    if is_over(token) {
        return Ok(false);
    }
    let (mut role, mut maker) = (token.role, token.maker.clone());
    for _ in 0..MOST_LINKS {
        let Some(id) = maker.strip_prefix(TOKEN).filter(|_| role == Role::Run) else {
            return Ok(true);
        };
        match find(db, id)? {
            Some((above, _)) if !is_over(&above) => (role, maker) = (above.role, above.maker),
            Some(_) | None => return Ok(false),
        }
    }
    Ok(false)
}

/// Whether the token of this id is good; one that nobody knows is not.
pub(super) fn holds(inner: &Inner, id: &str) -> Result<bool, Fault> {
    inner.store.read(|db| match find(db, id)? {
        Some((token, _)) => is_good(db, &token),
        None => Ok(false),
    })
}

/// Who has this secret. The same work is done whether the id is known or not.
pub(super) fn authenticate(inner: &Inner, secret: &str) -> Option<Caller> {
    let id = shape(secret)?;
    let found = inner.store.read(|db| {
        let Some((token, hash)) = find(db, id)? else {
            return Ok(None);
        };
        let ended = match &token.run {
            Some(run) => rows::phase(db, run)?.is_none_or(|phase| phase == "ended"),
            None => false,
        };
        let good = !ended && is_good(db, &token)?;
        Ok(Some((token, hash, good)))
    });
    let found = found.ok().flatten();
    let given = blake3::hash(secret.as_bytes());
    let stored = found
        .as_ref()
        .and_then(|(_, hash, _)| <[u8; 32]>::try_from(hash.as_slice()).ok());
    // The comparison of two digests takes the same time wherever they differ.
    let same = given == blake3::Hash::from(stored.unwrap_or([0; 32]));
    let (token, _, good) = found?;
    if !same || stored.is_none() || !good {
        return None;
    }
    Some(Caller {
        id: format!("{TOKEN}{}", token.id),
        kind: token.kind,
        role: token.role,
        run: token.run,
        prefix: token.prefix,
        verbs: token.verbs,
        ceiling: token.ceiling,
    })
}

/// The id of a text that has the form of a token.
fn shape(secret: &str) -> Option<&str> {
    let rest = secret.strip_prefix(PREFIX)?;
    let (id, random) = rest.split_once('_')?;
    let whole = id.len() == ID && random.len() == SECRET;
    let plain = rest.bytes().all(|b| b == b'_' || ALPHABET.contains(&b));
    (whole && plain).then_some(id)
}

/// Where the token of the local command line is.
pub(super) fn local_file(inner: &Inner) -> PathBuf {
    inner.options.state.join("daemon").join("admin.token")
}

/// Makes the token of the local command line at the first start.
pub(super) fn make_local(inner: &Inner) -> Result<(), Fault> {
    let path = local_file(inner);
    if path.exists() {
        return Ok(());
    }
    let wish = TokenWish::new(Role::Admin, LOCAL);
    let secret = inner.store.write(|db| {
        // One whose file is gone is nobody's.
        db.execute(
            "UPDATE tokens SET revoked_ms = ?1 WHERE note = ?2 AND maker = 'daemon' AND revoked_ms IS NULL",
            params![int(now_ms()), LOCAL],
        )?;
        insert(db, "daemon", &wish).map(|(_, secret)| secret)
    })?;
    let write = || {
        let beside = path.with_extension("new");
        let mut file = std::fs::File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(format!("{secret}\n").as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, &path)
    };
    write().map_err(|error| {
        Fault::new(
            Code::StateDir,
            format!("cannot write {}", path.display()),
            error.to_string(),
        )
    })
}
