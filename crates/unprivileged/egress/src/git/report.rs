//! The answer to a refused push in git's own words, so that git prints the reason beside the reference.
use super::pkt;
use super::push::Push;

/// Content type of the answer to a push.
pub(crate) const CONTENT_TYPE: &str = "application/x-git-receive-pack-result";
/// Longest piece of a message in one packet of the multiplexed stream: a packet less its length and band.
const MAX_BAND: usize = pkt::MAX_PACKET - 5;

/// Why each reference was refused, and what is said besides. `None`: this client takes no report.
pub(crate) fn refused(push: &Push, reasons: &[(String, String)], message: &str) -> Option<Vec<u8>> {
    if !push.reports {
        return None;
    }
    let mut report = Vec::new();
    pkt::write(&mut report, b"unpack ok\n");
    for update in &push.updates {
        let named = reasons
            .iter()
            .find(|(reference, _)| *reference == update.reference);
        let reason = named.map_or(
            "bastle: not pushed, because another reference was denied",
            |(_, why)| why,
        );
        let line = format!("ng {} {}\n", update.reference, one_line(reason));
        pkt::write(&mut report, line.as_bytes());
    }
    pkt::flush(&mut report);
    if !push.side_band {
        return Some(report);
    }
    let mut out = Vec::new();
    band(&mut out, 2, format!("{message}\n").as_bytes());
    band(&mut out, 1, &report);
    pkt::flush(&mut out);
    Some(out)
}

fn band(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    for piece in bytes.chunks(MAX_BAND) {
        let mut packet = vec![number];
        packet.extend_from_slice(piece);
        pkt::write(out, &packet);
    }
}

fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(1_000)
        .collect()
}
