//! Names of users and groups, from the files of this host alone: no loadable module runs in a privileged process.
use std::io::Read;

/// Largest list that is read.
const MOST: u64 = 1 << 20;

/// The uid of a user.
pub(super) fn uid_of(name: &str) -> Result<u32, String> {
    find(&read("/etc/passwd")?, name).ok_or_else(|| format!("/etc/passwd has no user {name:?}"))
}

/// The gid of a group.
pub(super) fn gid_of(name: &str) -> Result<u32, String> {
    find(&read("/etc/group")?, name).ok_or_else(|| format!("/etc/group has no group {name:?}"))
}

fn read(path: &str) -> Result<String, String> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MOST).read_to_string(&mut text))
        .map_err(|error| format!("{path}: {error}"))?;
    Ok(text)
}

/// The third field of the line whose first is the name. An empty name and one with a separator match nothing.
fn find(list: &str, name: &str) -> Option<u32> {
    list.lines().find_map(|line| {
        let mut fields = line.split(':');
        let own = fields.next()?;
        (own == name && !name.is_empty()).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_name_is_found() {
        let list = "root:x:0:0:root:/root:/bin/sh\nme:x:1000:1000::/home/me:\nbad:x:-1:\n::7:\n";
        assert_eq!((find(list, "root"), find(list, "me")), (Some(0), Some(1000)));
        for unknown in ["", "roo", "root:x", "bad", "me\n", "nobody"] {
            assert_eq!(find(list, unknown), None, "{unknown:?}");
        }
        assert_eq!(uid_of("root"), Ok(0));
    }
}
