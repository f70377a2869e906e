//! Names of the operations in the OpenAPI document. Generated clients make their methods from them: a verb and what it is
//! about, and stable, whatever becomes of an address.

/// An operation as `METHOD /path`, and its name.
const NAMES: &[(&str, &str)] = &[
    ("GET /healthz", "checkLiveness"),
    ("GET /readyz", "checkReadiness"),
    ("GET /metrics", "getMetrics"),
    ("POST /mcp", "callMcp"),
    ("DELETE /mcp", "closeMcpSession"),
    ("GET /api/v1/openapi.json", "getOpenApiDocument"),
    ("GET /api/v1/health", "getHealth"),
    ("GET /api/v1/ready", "getReadiness"),
    ("GET /api/v1/version", "getVersion"),
    ("GET /api/v1/whoami", "getCaller"),
    ("GET /api/v1/stats", "getStats"),
    ("POST /api/v1/runs", "createRuns"),
    ("GET /api/v1/runs", "listRuns"),
    ("GET /api/v1/runs/{id}", "getRun"),
    ("DELETE /api/v1/runs/{id}", "deleteRun"),
    ("POST /api/v1/runs/{id}/stop", "stopRun"),
    ("POST /api/v1/runs/{id}/kill", "killRun"),
    ("POST /api/v1/runs/{id}/pause", "pauseRun"),
    ("POST /api/v1/runs/{id}/resume", "resumeRun"),
    ("POST /api/v1/stop", "stopRuns"),
    ("GET /api/v1/runs/{id}/logs", "getRunLogs"),
    ("GET /api/v1/runs/{id}/events", "listRunEvents"),
    ("GET /api/v1/runs/{id}/preamble", "getRunPreamble"),
    ("POST /api/v1/preamble", "previewPreamble"),
    ("GET /api/v1/runs/{id}/status", "getRunStatus"),
    ("GET /api/v1/runs/{id}/grants", "listRunGrants"),
    ("POST /api/v1/runs/{id}/grants", "createRunGrant"),
    ("DELETE /api/v1/runs/{id}/grants", "deleteRunGrant"),
    ("POST /api/v1/runs/{id}/rules", "changeRunRules"),
    ("POST /api/v1/runs/{id}/say", "sendRunMessage"),
    ("POST /api/v1/runs/{id}/interrupt", "interruptRun"),
    ("GET /api/v1/runs/{id}/diff", "getRunDiff"),
    ("POST /api/v1/runs/{id}/apply", "applyRun"),
    ("GET /api/v1/runs/{id}/snapshots", "listRunSnapshots"),
    ("POST /api/v1/runs/{id}/snapshots", "createRunSnapshot"),
    ("POST /api/v1/runs/{id}/rollback", "rollbackRun"),
    ("GET /api/v1/runs/{id}/audit", "getRunAudit"),
    ("GET /api/v1/runs/{id}/files", "listRunFiles"),
    ("GET /api/v1/runs/{id}/files/content", "getRunFile"),
    ("GET /api/v1/runs/{id}/attach", "attachRun"),
    ("GET /api/v1/runs/{id}/exec", "execInRun"),
    ("GET /api/v1/batches", "listBatches"),
    ("GET /api/v1/batches/{id}", "getBatch"),
    ("POST /api/v1/batches/{id}/stop", "stopBatch"),
    ("GET /api/v1/approvals", "listApprovals"),
    ("GET /api/v1/approvals/{id}", "getApproval"),
    ("POST /api/v1/approvals/{id}/approve", "approveRequest"),
    ("POST /api/v1/approvals/{id}/deny", "denyRequest"),
    ("GET /api/v1/tokens", "listTokens"),
    ("POST /api/v1/tokens", "createToken"),
    ("DELETE /api/v1/tokens/{id}", "revokeToken"),
    ("GET /api/v1/profiles", "listProfiles"),
    ("GET /api/v1/profiles/{name}", "getProfile"),
    ("PUT /api/v1/profiles/{name}", "putProfile"),
    ("DELETE /api/v1/profiles/{name}", "deleteProfile"),
    ("GET /api/v1/presets", "listPresets"),
    ("GET /api/v1/presets/{name}", "getPreset"),
    ("GET /api/v1/blocked-commands", "listBlockedCommands"),
    ("POST /api/v1/policies/effective", "getEffectivePolicy"),
    ("POST /api/v1/policies/dry-run", "dryRunPolicy"),
    ("POST /api/v1/policies/can-i", "queryPolicy"),
    ("GET /api/v1/events", "streamEvents"),
    ("GET /api/v1/ws", "openEventSocket"),
    ("POST /api/v1/agents/spawn", "spawnAgents"),
    ("GET /api/v1/agents/active", "listActiveAgents"),
    ("GET /api/v1/agents/{id}", "getAgent"),
    ("POST /api/v1/agents/{id}/stop", "stopAgent"),
    ("POST /api/v1/agents/stop-all", "stopAllAgents"),
    ("GET /api/v1/agents/blocked-commands", "listAgentBlockedCommands"),
    ("GET /api/v1/agents/containment-status", "getContainmentStatus"),
    ("GET /api/v1/agents/status", "getAgentsStatus"),
    ("GET /api/v1/agents/ws-url", "getAgentsSocketUrl"),
];

/// The name of an operation.
pub(super) fn operation_id(method: &str, path: &str) -> Option<&'static str> {
    let matches = |operation: &str| {
        operation
            .split_once(' ')
            .is_some_and(|known| known == (method, path))
    };
    NAMES
        .iter()
        .find(|(operation, _)| matches(operation))
        .map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_has_one_name_of_its_own_and_no_name_is_without_a_route() {
        let served: BTreeSet<String> = crate::routes::table()
            .iter()
            .map(|route| format!("{} {}", route.method, route.path))
            .collect();
        let named: BTreeSet<String> = NAMES
            .iter()
            .map(|(operation, _)| (*operation).to_owned())
            .collect();
        assert_eq!(served, named);
        let ids: BTreeSet<&str> = NAMES.iter().map(|(_, name)| *name).collect();
        assert_eq!(ids.len(), NAMES.len());
    }
}
