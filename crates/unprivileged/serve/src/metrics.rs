//! Numbers for a monitoring system, in the text form of Prometheus.
//!
//! **Trust:** labels are routes and states of our own, never text of a request: nobody can make them grow.
use bastle_control::containment::{Containment, ContainmentVerdict};
use bastle_control::fleet::MetricsSnapshot;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the histogram, in microseconds.
const BOUNDS: [u64; 10] = [
    500, 1_000, 2_500, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 10_000_000,
];

/// What is counted here; the fleet counts the rest.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<(String, String, u16), u64>>,
    latency: [AtomicU64; BOUNDS.len()],
    latency_count: AtomicU64,
    latency_sum: AtomicU64,
    /// Connections that were closed because others came.
    pub(crate) displaced: AtomicU64,
    /// Connections that are open.
    pub(crate) connections: AtomicU64,
    /// Webhooks that could not be delivered.
    pub(crate) webhook_failures: AtomicU64,
    /// Traces that no collector took.
    pub(crate) trace_failures: AtomicU64,
}

impl Metrics {
    /// One request that was answered.
    pub(crate) fn request(&self, method: &str, route: &str, status: u16, took: Duration) {
        // A method is any word of the request: only known ones are a label.
        let method = match method {
            "GET" | "POST" | "PUT" | "DELETE" | "HEAD" | "OPTIONS" | "PATCH" => method,
            _ => "other",
        };
        let key = (method.to_owned(), route.to_owned(), status);
        *self
            .requests
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .entry(key)
            .or_default() += 1;
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.latency_count.fetch_add(1, Ordering::Relaxed);
        self.latency_sum.fetch_add(micros, Ordering::Relaxed);
        for (bound, count) in BOUNDS.iter().zip(&self.latency) {
            if micros <= *bound {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The whole text.
    pub(crate) fn text(
        &self,
        fleet: &MetricsSnapshot,
        streams: usize,
        contained: Option<&Containment>,
    ) -> String {
        let mut out = Text::default();
        containment(&mut out, contained);
        out.family("bastle_runs", "gauge", "Runs by state.");
        for (state, count) in &fleet.runs {
            out.line(&format!("bastle_runs{{state=\"{state}\"}}"), *count);
        }
        out.one(
            "bastle_spawned_total",
            "counter",
            "Runs asked for.",
            fleet.spawned,
        );
        out.one(
            "bastle_spawn_failures_total",
            "counter",
            "Keepers that could not be started.",
            fleet.spawn_failures,
        );
        out.one(
            "bastle_denials_total",
            "counter",
            "Denied attempts.",
            fleet.denials,
        );
        anomalies(&mut out, fleet);
        out.one(
            "bastle_events_total",
            "counter",
            "Newest event number.",
            fleet.events,
        );
        out.one("bastle_queue", "gauge", "Runs that wait.", fleet.queued);
        out.one("bastle_questions", "gauge", "Open questions.", fleet.questions);
        out.one(
            "bastle_store_errors_total",
            "counter",
            "Writes to the store that failed.",
            fleet.store_errors,
        );
        out.one(
            "bastle_store_commits_total",
            "counter",
            "Transactions.",
            fleet.commits,
        );
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        out.one(
            "bastle_http_connections",
            "gauge",
            "Open connections.",
            load(&self.connections),
        );
        out.one(
            "bastle_http_displaced_total",
            "counter",
            "Idle connections closed because others came.",
            load(&self.displaced),
        );
        out.one(
            "bastle_http_streams",
            "gauge",
            "Open streams.",
            u64::try_from(streams).unwrap_or(u64::MAX),
        );
        out.one(
            "bastle_webhook_failures_total",
            "counter",
            "Webhooks that could not be delivered.",
            load(&self.webhook_failures),
        );
        out.one(
            "bastle_trace_failures_total",
            "counter",
            "Batches of spans that no collector took.",
            load(&self.trace_failures),
        );
        self.http(&mut out);
        out.0
    }

    fn http(&self, out: &mut Text) {
        out.family("bastle_http_requests_total", "counter", "Requests answered.");
        let requests = self
            .requests
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for ((method, route, status), count) in requests.iter() {
            out.line(
                &format!(
                    "bastle_http_requests_total{{method=\"{method}\",route=\"{route}\",status=\"{status}\"}}"
                ),
                *count,
            );
        }
        out.family(
            "bastle_http_seconds",
            "histogram",
            "Time to the head of an answer.",
        );
        for (bound, count) in BOUNDS.iter().zip(&self.latency) {
            let (whole, part) = (bound / 1_000_000, bound % 1_000_000);
            out.line(
                &format!("bastle_http_seconds_bucket{{le=\"{whole}.{part:06}\"}}"),
                count.load(Ordering::Relaxed),
            );
        }
        let all = self.latency_count.load(Ordering::Relaxed);
        out.line("bastle_http_seconds_bucket{le=\"+Inf\"}", all);
        let sum = self.latency_sum.load(Ordering::Relaxed);
        out.raw(&format!(
            "bastle_http_seconds_sum {}.{:06}",
            sum / 1_000_000,
            sum % 1_000_000
        ));
        out.line("bastle_http_seconds_count", all);
    }
}

#[derive(Default)]
struct Text(String);

fn containment(out: &mut Text, contained: Option<&Containment>) {
    if let Some(known) = contained {
        out.one(
            "bastle_containment_enforced",
            "gauge",
            "Whether the newest containment probe held.",
            u64::from(known.verdict == ContainmentVerdict::Enforced),
        );
        out.one(
            "bastle_containment_probe_age_seconds",
            "gauge",
            "How long ago the newest containment probe ended.",
            known.age().as_secs(),
        );
    }
}

fn anomalies(out: &mut Text, fleet: &MetricsSnapshot) {
    out.family(
        "bastle_anomalies_total",
        "counter",
        "Findings of the anomaly rules by severity.",
    );
    for (severity, count) in &fleet.anomalies {
        out.line(
            &format!("bastle_anomalies_total{{severity=\"{severity}\"}}"),
            *count,
        );
    }
}

impl Text {
    fn raw(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    fn family(&mut self, name: &str, sort: &str, help: &str) {
        self.raw(&format!("# HELP {name} {help}"));
        self.raw(&format!("# TYPE {name} {sort}"));
    }

    fn line(&mut self, name: &str, value: u64) {
        // Writing to a string does not fail.
        match writeln!(self.0, "{name} {value}") {
            Ok(()) | Err(_) => {}
        }
    }

    fn one(&mut self, name: &str, sort: &str, help: &str, value: u64) {
        self.family(name, sort, help);
        self.line(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_comment_or_a_number_and_a_strange_method_makes_no_label() {
        let metrics = Metrics::default();
        metrics.request("GET", "/api/v1/runs", 200, Duration::from_millis(3));
        metrics.request("X\"}\nevil", "other", 404, Duration::from_secs(60));
        let text = metrics.text(&MetricsSnapshot::default(), 2, None);
        assert!(!text.contains("evil"));
        assert!(
            text.contains(
                "bastle_http_requests_total{method=\"GET\",route=\"/api/v1/runs\",status=\"200\"} 1"
            )
        );
        assert!(
            text.contains("bastle_http_seconds_bucket{le=\"0.005000\"} 1"),
            "{text}"
        );
        assert!(text.contains("bastle_http_seconds_count 2"));
        for line in text.lines() {
            let number = line
                .rsplit_once(' ')
                .is_some_and(|(_, number)| number.parse::<f64>().is_ok());
            assert!(line.starts_with('#') || number, "{line}");
        }
    }
}
