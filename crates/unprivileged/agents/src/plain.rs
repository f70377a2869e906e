//! A command that knows no protocol: lines in, text out.
use crate::driver::{AgentDriver, AgentUsage, Answer, DriverError, Heard, Said, Session, bounded};
use crate::reading::cut;

/// A plain command.
#[derive(Debug, Default)]
pub struct Plain {
    usage: AgentUsage,
}

impl AgentDriver for Plain {
    fn start(&mut self, _session: &Session) -> Vec<u8> {
        Vec::new()
    }

    fn prompt(&mut self, text: &str) -> Result<Vec<u8>, DriverError> {
        self.usage.turns += 1;
        Ok(format!("{}\n", bounded(text)?).into_bytes())
    }

    fn steer(&mut self, text: &str) -> Result<Vec<u8>, DriverError> {
        // It reads its input when it likes to: a line is all there is.
        Ok(format!("{}\n", bounded(text)?).into_bytes())
    }

    fn interrupt(&mut self) -> Result<Vec<u8>, DriverError> {
        Err(DriverError::Unsupported(
            "interrupted by a message; stop the run instead",
        ))
    }

    fn answer_permission(&mut self, _id: &str, _answer: &Answer) -> Result<Vec<u8>, DriverError> {
        Err(DriverError::Unknown)
    }

    fn take(&mut self, bytes: &[u8]) -> Heard {
        let text = String::from_utf8_lossy(bytes);
        let said = if text.is_empty() {
            Vec::new()
        } else {
            vec![Said::Text { text: cut(&text) }]
        };
        Heard {
            said,
            reply: Vec::new(),
        }
    }

    fn usage(&self) -> AgentUsage {
        self.usage.clone()
    }

    fn is_working(&self) -> bool {
        true
    }
}
