//! What a run's first and last lines say about files and caches. Reasons are the kernel's words.
use super::RunVoice;
use bastle_audit::sanitize;
use bastle_contract::ReadSight;
use bastle_control::caches::CacheEnd;

impl RunVoice<'_> {
    /// Whether the reading of files is seen, in a few words.
    pub(super) fn reads_words(&self) -> String {
        match &self.sight {
            Some(ReadSight::Fanotify) => "reads: seen by fanotify".to_owned(),
            Some(ReadSight::Nothing { why }) => format!("reads: not seen ({})", sanitize(why)),
            None => "reads: not seen".to_owned(),
        }
    }
}

/// What a run left above caches, and how it becomes everybody's.
pub(super) fn cache_lines(run: &str, caches: &[CacheEnd]) -> Vec<String> {
    let told = |end: &CacheEnd| {
        let CacheEnd { cache, new, merged } = end;
        match (new, merged) {
            (0, _) => None,
            (new, 0) => Some(format!("  cache {cache}: {new} new; bastle cache merge {run}")),
            (new, merged) => Some(format!("  cache {cache}: {new} new, {merged} merged")),
        }
    };
    caches.iter().filter_map(told).collect()
}
