//! `bastle version`: what this is and what it runs on.
use crate::context::{Context, Ended};
use crate::render::clean;
use serde_json::json;

/// Arguments of `version`.
#[derive(Debug, clap::Args)]
pub(crate) struct VersionArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints it.
pub(crate) fn run(args: &VersionArgs, cx: &Context) -> Ended {
    let uname = rustix::system::uname();
    let kernel = uname.release().to_string_lossy();
    let (version, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    if args.json {
        cx.print_json(
            &json!({ "schema": "bastle.version/v1", "version": version, "kernel": kernel, "arch": arch }),
        )?;
    } else {
        cx.print(&format!("bastle {version}\nkernel {} {arch}\n", clean(&kernel)))?;
    }
    Ok(0)
}
