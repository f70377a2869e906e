//! Line-based configuration: npm's and pip's, and apt's two forms.

/// Addresses in an `.npmrc`, `.yarnrc` or `.yarnrc.yml`: the registry, and the registry of a scope.
pub(super) fn npm(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with(['#', ';']));
    let found = lines.filter_map(|line| {
        let (key, value) = line
            .split_once('=')
            .or_else(|| line.split_once(": "))
            .or_else(|| line.split_once(' '))?;
        let key = key.trim().trim_matches(['"', '\'']);
        let named = key == "registry"
            || (key.starts_with('@') && key.ends_with(":registry"))
            || key == "npmRegistryServer";
        named.then(|| unquoted(value))
    });
    found.collect()
}

/// Addresses in a `pip.conf`: a value may go on in indented lines.
pub(super) fn pip(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with([' ', '\t']) && inside {
            found.extend(bare.split_whitespace().map(str::to_owned));
            continue;
        }
        let Some((key, value)) = bare.split_once(['=', ':']) else {
            inside = false;
            continue;
        };
        // `global.index-url='…'`, as pip itself lists it.
        let key = key.trim().rsplit('.').next().unwrap_or_default();
        inside = matches!(
            key,
            "index-url" | "index_url" | "extra-index-url" | "extra_index_url" | "find-links" | "index"
        );
        if inside {
            found.extend(value.split_whitespace().map(unquoted));
        }
    }
    found
}

/// Addresses in a `sources.list` or a deb822 `.sources` file.
pub(super) fn apt(text: &str) -> Vec<String> {
    let one_line = text.lines().filter_map(|line| {
        let line = line.split('#').next().unwrap_or_default().trim();
        let rest = line
            .strip_prefix("deb-src")
            .or_else(|| line.strip_prefix("deb"))?
            .strip_prefix([' ', '\t'])?
            .trim_start();
        // `[arch=amd64 signed-by=…]` stands before the address.
        let rest = match rest.strip_prefix('[') {
            Some(options) => options.split_once(']')?.1,
            None => rest,
        };
        rest.split_whitespace().next().map(str::to_owned)
    });
    let mut found: Vec<String> = one_line.collect();
    found.extend(deb822(text));
    found
}

fn deb822(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut stanza: (Vec<String>, bool) = (Vec::new(), true);
    let mut inside = false;
    for line in text.lines().chain([""]) {
        if line.trim().is_empty() {
            let (addresses, enabled) = std::mem::replace(&mut stanza, (Vec::new(), true));
            found.extend(addresses.into_iter().filter(|_| enabled));
            inside = false;
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        if line.starts_with([' ', '\t']) {
            if inside {
                stanza.0.extend(line.split_whitespace().map(str::to_owned));
            }
            continue;
        }
        let Some((key, value)) = line.split_once(':') else {
            inside = false;
            continue;
        };
        inside = key.trim().eq_ignore_ascii_case("URIs");
        if inside {
            stanza.0.extend(value.split_whitespace().map(str::to_owned));
        }
        if key.trim().eq_ignore_ascii_case("Enabled") {
            let word = value.trim();
            stanza.1 = !["no", "false", "0", "off", "disable", "without"]
                .iter()
                .any(|off| word.eq_ignore_ascii_case(off));
        }
    }
    found
}

fn unquoted(text: &str) -> String {
    text.trim().trim_matches(['"', '\'']).to_owned()
}
