//! From a profile to a command line.
use super::{Profile, PromptBy, agents};
use bastle_contract::{Argv, Code, Fault};

/// The element that stands for the prompt.
pub(super) const PROMPT: &str = "{prompt}";
/// The element that stands for the model.
pub(super) const MODEL: &str = "{model}";
/// The longest argument that the kernel takes, its end included.
const MAX_ARGUMENT: usize = 128 * 1024;

/// Who is at the agent's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Nobody: it gets its prompt and ends.
    Alone,
    /// A driver.
    Driven,
}

impl Profile {
    /// What is executed, and what is written to its standard input, for a prompt.
    pub fn argv(&self, prompt: Option<&str>) -> Result<(Argv, Option<String>), Fault> {
        if self.command.is_empty() {
            return Err(usage(
                format!("profile {} has no command of its own", self.name),
                "the request has to name one",
            )
            .help(format!("bastle run -d --profile {} -- COMMAND", self.name)));
        }
        self.asked(self.words(&self.command, How::Alone), prompt)
    }

    /// What is executed for an agent that is spoken to in its protocol: its prompt is no part of it.
    pub fn driven_argv(&self, given: Option<&Argv>) -> Result<Argv, Fault> {
        let command = match (given, self.command.is_empty(), self.driven.is_empty()) {
            (Some(given), true, true) => return Ok(given.clone()),
            (Some(given), ..) => return self.argv_of(given, None).map(|(argv, _)| argv),
            (None, true, true) => return self.argv(None).map(|(argv, _)| argv),
            (None, _, false) => &self.driven,
            (None, false, true) if self.prompt == PromptBy::Argument => {
                return Err(usage(
                    format!("profile {} is not driven", self.name),
                    "its command takes the prompt as an argument",
                )
                .help(
                    "name a driver and the command of its protocol in the profile: \"driver\", \"driven\"",
                ));
            }
            (None, false, true) => &self.command,
        };
        self.line(self.words(command, How::Driven))
    }

    /// The same for a command that the request names. Only a profile without a command lets it.
    pub fn argv_of(&self, given: &Argv, prompt: Option<&str>) -> Result<(Argv, Option<String>), Fault> {
        if !self.command.is_empty() {
            return Err(usage(
                format!("profile {} has a command of its own", self.name),
                "a request that names another would run something else under its name",
            )
            .help("leave the command out, or take profile default"));
        }
        self.asked(given.as_slice().to_vec(), prompt)
    }

    /// The command with model, tools and turns as its agent takes them.
    fn words(&self, command: &[String], how: How) -> Vec<String> {
        let mut words = command.to_vec();
        let Some(agent) = agents::find(&self.agent) else {
            return self.with_placed_model(words);
        };
        let mut more: Vec<String> = Vec::new();
        let flag = match how {
            How::Alone => agent.model,
            How::Driven => agent.driven_model,
        };
        if let (Some(flag), Some(model)) = (flag, &self.model)
            && !words.iter().any(|word| word == MODEL)
        {
            more.extend([flag.to_owned(), model.clone()]);
        }
        if let Some(flag) = agent.turns {
            more.extend([flag.to_owned(), self.max_turns.to_string()]);
        }
        if let Some(inner) = agent.inner {
            let meant = inner
                .verb
                .is_none_or(|verb| words.get(1).is_some_and(|word| word == verb));
            let told = how == How::Driven && inner.by_driver;
            let named = inner
                .off
                .first()
                .is_some_and(|flag| words.iter().any(|word| word == flag));
            if meant && !told && !named {
                more.extend(inner.off.iter().map(|word| (*word).to_owned()));
            }
        }
        if let Some((allow, deny)) = agent.tools {
            let allowed = self.tools.allow.as_deref().unwrap_or_default();
            for (flag, list) in [(allow, allowed), (deny, self.tools.deny.as_slice())] {
                if !list.is_empty() {
                    more.push(flag.to_owned());
                    more.extend(list.iter().map(|rule| rule.value.clone()));
                }
            }
        }
        // Behind `--` or a placed prompt a switch would be a word like any other, or swallow what follows.
        let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
        words.splice(end..end, more);
        self.with_placed_model(words)
    }

    fn with_placed_model(&self, words: Vec<String>) -> Vec<String> {
        let model = self.model.as_deref().unwrap_or_default();
        let placed = |word: String| if word == MODEL { model.to_owned() } else { word };
        words.into_iter().map(placed).collect()
    }

    fn asked(&self, words: Vec<String>, prompt: Option<&str>) -> Result<(Argv, Option<String>), Fault> {
        let (words, input) = match (self.prompt, prompt) {
            (PromptBy::None, None) => (words, None),
            (PromptBy::None, Some(_)) => {
                return Err(usage(
                    format!("profile {} takes no prompt", self.name),
                    "its command would not read it",
                ));
            }
            // A plain command reads its input or does not; an agent without a task does nothing at all.
            (PromptBy::Stdin, None) if self.command.is_empty() => (words, None),
            (PromptBy::Stdin | PromptBy::Argument, None) => {
                return Err(usage(format!("profile {} needs a prompt", self.name), ""));
            }
            (PromptBy::Stdin, Some(prompt)) => (words, Some(prompt.to_owned())),
            (PromptBy::Argument, Some(prompt)) => (self.with_argument(words, prompt)?, None),
        };
        Ok((self.line(words)?, input))
    }

    fn line(&self, words: Vec<String>) -> Result<Argv, Fault> {
        Argv::try_from(words).map_err(|error| {
            usage(
                format!("profile {} makes no command line", self.name),
                &error.to_string(),
            )
        })
    }

    fn with_argument(&self, words: Vec<String>, prompt: &str) -> Result<Vec<String>, Fault> {
        // An agent reads a word that begins with a dash as a switch, and some switches turn its own questions off.
        if prompt.starts_with('-') {
            return Err(usage(
                "the prompt begins with a dash".to_owned(),
                "as an argument it would be read as a switch of the agent",
            ));
        }
        if prompt.len() >= MAX_ARGUMENT {
            return Err(usage(
                format!("the prompt has {} bytes", prompt.len()),
                "an argument has fewer than 131072; profiles that take it on standard input take more",
            ));
        }
        let placed = |word: String| if word == PROMPT { prompt.to_owned() } else { word };
        Ok(words.into_iter().map(placed).collect())
    }
}

fn usage(what: String, why: &str) -> Fault {
    Fault::new(Code::UsageArgument, what, why)
}
