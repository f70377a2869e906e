//! Pure judgement and planning: documents, layers, decide, plan, explain, lint.
