//! Group `egress`: tunnels through the proxy beside other proxies, a direct connection and the lower bound.
//!
//! Everything runs on loopback. bastle decides, checks the ClientHello, records and reports as it always does; the
//! others do what their shortest sensible configuration makes them do, with their access log on where they have one.
mod bump;
mod load;
mod peers;
mod process;

use super::results::GroupResult;
use super::sample::{Contender, Measured, interleave, measured, rounded};
use super::version_of;
use crate::sh::{self, Failed};
use crate::test::stage::Stage;
use load::{Load, Rate};
use peers::Peer;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Tunnels that are held while memory is looked at: enough to see, and within what every peer takes.
const HELD: usize = 500;
/// Bytes of a gigabyte, as everybody's throughput is told.
const GIGABYTE: f64 = 1e9;
/// Tunnels of which one takes as many microseconds as all of them take seconds.
const MILLION: f64 = 1e6;

/// What is measured with the same contenders, one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    /// Bytes per second over one tunnel.
    Throughput,
    /// Over four at once.
    Throughput4,
    /// Tunnels per second, sixteen clients.
    Tunnels,
    /// Microseconds of a round trip.
    Latency,
    /// Requests per second inside TLS that the proxy looks into.
    Terminated,
}

const MEASURES: &[Measure] = &[
    Measure::Throughput,
    Measure::Throughput4,
    Measure::Tunnels,
    Measure::Latency,
    Measure::Terminated,
];

impl Measure {
    fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput_gb_s",
            Self::Throughput4 => "throughput4_gb_s",
            Self::Tunnels => "tunnels_s",
            Self::Latency => "round_trip_us",
            Self::Terminated => "terminated_requests_s",
        }
    }

    /// Under which name the processor time of this measure is told, where it is.
    fn cpu_name(self) -> Option<&'static str> {
        match self {
            Self::Throughput4 => Some("cpu_s_per_gb"),
            Self::Tunnels => Some("cpu_us_per_tunnel"),
            Self::Throughput | Self::Latency | Self::Terminated => None,
        }
    }

    /// Whether `peer` takes part: only those who look into TLS, and a direct connection, can be compared there.
    fn is_for(self, peer: &Peer) -> bool {
        match self {
            Self::Terminated => peer.terminates,
            Self::Throughput | Self::Throughput4 | Self::Tunnels | Self::Latency => peer.passes,
        }
    }
}

/// Figures by measure and contender.
type Figures = BTreeMap<String, BTreeMap<String, f64>>;

/// Measures everybody who is there. `not_installed` says why somebody could not be brought here.
pub(super) fn run(
    bastle: &Path,
    samples: usize,
    not_installed: &BTreeMap<String, String>,
) -> Result<GroupResult, Failed> {
    let stage = Stage::new("bench-egress")?;
    let load = Load::start(&stage)?;
    let (mut running, mut absent) = peers::start(&stage, &load, bastle, not_installed)?;
    let mut figures = Figures::new();
    memory(&load, &running, &mut figures)?;
    peers::look_inside(&load, &mut running, &mut absent);
    for measure in MEASURES {
        println!("measuring {}", measure.name());
        let cpu = RefCell::new(BTreeMap::<&'static str, Vec<f64>>::new());
        let mut contenders: Vec<Contender<'_>> = running
            .iter()
            .filter(|peer| measure.is_for(peer))
            .map(|peer| Contender {
                name: peer.name,
                once: Box::new(|| sample(&load, peer, *measure, &cpu)),
            })
            .collect();
        let seen = interleave(&mut contenders, samples)?;
        drop(contenders);
        figures.insert(measure.name().to_owned(), medians(&seen));
        if let Some(name) = measure.cpu_name() {
            figures.insert(name.to_owned(), cpu_medians(cpu.into_inner()));
        }
    }
    let ratios = ratios(&figures);
    print!("{}", table(&figures, &ratios));
    Ok(GroupResult {
        samples,
        // Not milliseconds, so not under that name: all of it is in `figures`.
        measured: BTreeMap::new(),
        ratios,
        versions: versions(bastle),
        steps: BTreeMap::new(),
        absent,
        figures,
    })
}

/// One sample of one contender; what the proxy's processors spent is kept beside it.
fn sample(
    load: &Load,
    peer: &Peer,
    measure: Measure,
    cpu: &RefCell<BTreeMap<&'static str, Vec<f64>>>,
) -> Result<f64, Failed> {
    // What the proxy spent for one unit of what it did.
    let weighed = |unit: f64, load: &dyn Fn() -> Result<Rate, Failed>| {
        let before = peer.cpu_seconds();
        let seen = load()?;
        let units = seen.count / unit;
        if let (Some(before), Some(after)) = (before, peer.cpu_seconds())
            && units > 0.0
        {
            let mut all = cpu.borrow_mut();
            all.entry(peer.name).or_default().push((after - before) / units);
        }
        Ok(seen.per_second)
    };
    let throughput =
        |connections| weighed(GIGABYTE, &|| load.throughput(peer, connections)).map(|rate| rate / GIGABYTE);
    match measure {
        Measure::Throughput => throughput(1),
        Measure::Throughput4 => throughput(4),
        Measure::Tunnels => weighed(MILLION, &|| load.tunnels(peer)),
        Measure::Latency => load.latency(peer),
        Measure::Terminated => load.terminated(peer),
    }
}

/// Memory idle and with many tunnels open, before anything else has made a process grow.
fn memory(load: &Load, running: &[Peer], figures: &mut Figures) -> Result<(), Failed> {
    for peer in running.iter().filter(|peer| peer.passes) {
        let Some(idle) = peer.resident_kib() else {
            continue;
        };
        let held = load.hold(peer, HELD)?;
        let full = peer.resident_kib().unwrap_or(idle);
        held.release();
        let mut put = |name: &str, value: f64| {
            let by_peer = figures.entry(name.to_owned()).or_default();
            by_peer.insert(peer.name.to_owned(), rounded(value));
        };
        put("rss_idle_mb", idle / 1000.0);
        put("rss_per_tunnel_kib", (full - idle).max(0.0) / HELD as f64);
    }
    Ok(())
}

fn medians(seen: &BTreeMap<String, Measured>) -> BTreeMap<String, f64> {
    seen.iter()
        .map(|(name, value)| (name.clone(), rounded(value.median)))
        .collect()
}

fn cpu_medians(seen: BTreeMap<&'static str, Vec<f64>>) -> BTreeMap<String, f64> {
    seen.into_iter()
        .filter_map(|(name, mut values)| Some((name.to_owned(), rounded(measured(&mut values)?.median))))
        .collect()
}

/// What the targets speak of. A ratio needs both sides; the two figures of memory stand for themselves.
fn ratios(figures: &Figures) -> BTreeMap<String, f64> {
    let of = |measure: &str, name: &str| figures.get(measure)?.get(name).copied();
    let over = |measure: &str, other: &str| {
        let (ours, theirs) = (of(measure, "bastle")?, of(measure, other)?);
        (theirs > 0.0).then(|| rounded(ours / theirs))
    };
    // What a proxy adds to a round trip; noise can make it nothing, and then there is no ratio.
    let added = |name: &str| {
        let added = of("round_trip_us", name)? - of("round_trip_us", "direct")?;
        (added > 0.0).then_some(added)
    };
    let latency = || Some(rounded(added("bastle")? / added("squid")?));
    [
        ("throughput_over_squid", over("throughput_gb_s", "squid")),
        ("throughput_over_limit", over("throughput_gb_s", "limit")),
        ("throughput4_over_squid", over("throughput4_gb_s", "squid")),
        ("throughput4_over_limit", over("throughput4_gb_s", "limit")),
        ("throughput_over_tinyproxy", over("throughput_gb_s", "tinyproxy")),
        ("throughput_over_mitmproxy", over("throughput_gb_s", "mitmproxy")),
        ("tunnels_over_squid", over("tunnels_s", "squid")),
        ("tunnels_over_limit", over("tunnels_s", "limit")),
        ("latency_over_squid", latency()),
        ("cpu_per_gb_over_squid", over("cpu_s_per_gb", "squid")),
        ("cpu_per_gb_over_limit", over("cpu_s_per_gb", "limit")),
        ("cpu_per_tunnel_over_squid", over("cpu_us_per_tunnel", "squid")),
        ("cpu_per_tunnel_over_limit", over("cpu_us_per_tunnel", "limit")),
        (
            "terminated_over_mitmproxy",
            over("terminated_requests_s", "mitmproxy"),
        ),
        ("terminated_over_squid", over("terminated_requests_s", bump::NAME)),
        ("rss_idle_mb", of("rss_idle_mb", "bastle")),
        ("rss_per_tunnel_kib", of("rss_per_tunnel_kib", "bastle")),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?)))
    .collect()
}

/// The table people read: one row per contender, one column per measure.
fn table(figures: &Figures, ratios: &BTreeMap<String, f64>) -> String {
    let mut text = String::new();
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        text.write_fmt(arguments).unwrap_or_default();
    };
    line(format_args!("{:<12}", "what"));
    for measure in figures.keys() {
        line(format_args!(" {measure:>21}"));
    }
    line(format_args!("\n"));
    for name in peers::NAMES {
        if !figures.values().any(|by_peer| by_peer.contains_key(*name)) {
            continue;
        }
        line(format_args!("{name:<12}"));
        for by_peer in figures.values() {
            match by_peer.get(*name) {
                Some(value) => line(format_args!(" {value:>21.3}")),
                None => line(format_args!(" {:>21}", "–")),
            }
        }
        line(format_args!("\n"));
    }
    for (name, ratio) in ratios {
        line(format_args!("{name:<28} {ratio:>10.3}\n"));
    }
    text
}

fn versions(bastle: &Path) -> BTreeMap<String, String> {
    [
        ("squid", sh::which("squid")),
        ("tinyproxy", sh::which("tinyproxy")),
        ("mitmproxy", peers::mitmdump()),
        ("bastle", Some(bastle.to_path_buf())),
    ]
    .into_iter()
    .filter_map(|(name, program)| {
        let program = program?;
        // Squid alone spells it in one letter.
        let version = if name == "squid" {
            sh::stdout_of(std::process::Command::new(&program).arg("-v"))
                .ok()?
                .lines()
                .next()?
                .to_owned()
        } else {
            version_of(&program)
        };
        Some((name.to_owned(), version))
    })
    .collect()
}

/// Puts the peers that cannot be installed as system's packages into the target directory. Without one the others are
/// measured all the same: who is not there, and why.
pub(super) fn install() -> BTreeMap<String, String> {
    let tried = [
        ("mitmproxy", peers::install_mitmproxy()),
        (bump::NAME, bump::install()),
    ];
    let failed = tried
        .into_iter()
        .filter_map(|(name, tried)| Some((name.to_owned(), tried.err()?.to_string())));
    failed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        let by = |values: &[(&str, f64)]| values.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
        Figures::from([
            (
                "throughput_gb_s".to_owned(),
                by(&[("bastle", 3.0), ("squid", 2.0)]),
            ),
            (
                "round_trip_us".to_owned(),
                by(&[("direct", 10.0), ("bastle", 40.0), ("squid", 70.0)]),
            ),
            ("rss_idle_mb".to_owned(), by(&[("bastle", 9.0)])),
        ])
    }

    #[test]
    fn latency_is_compared_by_what_a_proxy_adds() {
        let ratios = ratios(&figures());
        assert_eq!(ratios["latency_over_squid"], 0.5);
        assert_eq!(ratios["throughput_over_squid"], 1.5);
        assert_eq!(ratios["rss_idle_mb"], 9.0);
        assert!(
            !ratios.contains_key("throughput_over_limit"),
            "one side is missing"
        );
    }

    #[test]
    fn whoever_was_not_measured_has_no_row() {
        let text = table(&figures(), &BTreeMap::new());
        assert!(text.contains("bastle") && text.contains("direct") && !text.contains("tinyproxy"));
    }
}
