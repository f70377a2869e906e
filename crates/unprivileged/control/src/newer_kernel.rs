//! How a kernel with every part of Landlock is had on this distribution: for whoever is refused for lack of one.

/// As a command or a sentence. `kernel` is what `uname -r` says.
#[must_use]
pub fn newer_kernel(kernel: &str) -> String {
    let release = std::fs::read_to_string("/etc/os-release")
        .or_else(|_| std::fs::read_to_string("/usr/lib/os-release"))
        .unwrap_or_default();
    for_release(&release, kernel)
}

/// How a kernel with every part is had on this distribution.
fn for_release(release: &str, kernel: &str) -> String {
    let field = |name: &str| {
        let line = release
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches('"')
    };
    let version = field("VERSION_ID");
    if kernel.to_ascii_lowercase().contains("microsoft") {
        return "in Windows: wsl --update".to_owned();
    }
    if kernel.contains("-rpi") {
        return "Raspberry Pi's kernels have no Landlock: build one with CONFIG_SECURITY_LANDLOCK=y, and add \
                lsm=landlock,lockdown,yama,integrity,apparmor to cmdline.txt"
            .to_owned();
    }
    match (field("ID"), version) {
        ("debian", "12") => "sudo apt install -t bookworm-backports linux-image-amd64".to_owned(),
        ("ubuntu", "24.04") => "sudo apt install linux-generic-hwe-24.04".to_owned(),
        ("ubuntu", _) => "upgrade to Ubuntu 24.04 with linux-generic-hwe-24.04, or newer".to_owned(),
        ("amzn", "2023") => "sudo dnf install kernel6.12".to_owned(),
        ("rhel" | "rocky" | "almalinux" | "centos" | "ol", _) if version.starts_with('9') => {
            "upgrade to release 10".to_owned()
        }
        _ => "use Linux 6.12 or newer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::for_release as fix;

    #[test]
    fn the_fix_is_the_distributions_own() {
        let of =
            |id: &str, version: &str| fix(&format!("NAME=x\nID={id}\nVERSION_ID=\"{version}\"\n"), "6.1.0");
        assert!(of("debian", "12").contains("bookworm-backports"));
        assert!(of("ubuntu", "24.04").contains("hwe-24.04"));
        assert!(of("amzn", "2023").contains("kernel6.12"));
        assert!(of("rocky", "9.6").contains("release 10"));
        assert!(of("gentoo", "").contains("6.12"));
        assert!(fix("ID=debian\nVERSION_ID=13\n", "6.18.2+rpt-rpi-v8").contains("CONFIG_SECURITY_LANDLOCK"));
        assert!(fix("ID=ubuntu\n", "6.6.87.2-microsoft-standard-WSL2").contains("wsl --update"));
    }
}
