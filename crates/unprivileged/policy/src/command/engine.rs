//! Puts the judgement together: reads, walks, looks behind wrappers, asks the rules; the strictest answer stands.

use super::builtins::{self, Builtin};
use super::matching::{Match, base, system_name};
use super::redirect::{self, Place};
use super::rule::CommandRule;
use super::tables::{RESERVED, SHELLS};
use super::values::Values;
use super::walk::{self, Item, Simple, Times};
use super::word::{self, Quoting, Word};
use super::wrapper_tables::Own;
use super::wrappers::{self, Inner};
use super::{CommandOutcome, CommandRules, CommandVerdict, MAX_COMMANDS, MAX_DEPTH, MAX_LINE};
use super::{dangers, environment, plain, reading, width};

/// The longest part shown in a verdict.
const MAX_SHOWN: usize = 400;

/// How much an unclear part weighs when no allow-list is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// It may hide any program: ask.
    Heavy,
    /// The fence judges what it does: only a named restriction counts.
    Light,
}

pub(super) fn judge_line(line: &str, rules: &CommandRules, default: CommandOutcome) -> CommandVerdict {
    let mut judge = Judge {
        line,
        rules,
        default,
        worst: None,
        commands: 0,
        place: Place::Below(String::new()),
        values: Values::default(),
    };
    if line.len() > MAX_LINE {
        judge.limit("the line is longer than 64 KiB");
    } else {
        judge.script(line, 0);
    }
    judge.worst.unwrap_or_else(|| CommandVerdict {
        outcome: CommandOutcome::Allow,
        part: short(line),
        rule: None,
        reason: "it runs nothing".into(),
    })
}

struct Judge<'r> {
    line: &'r str,
    rules: &'r CommandRules,
    default: CommandOutcome,
    worst: Option<CommandVerdict>,
    commands: usize,
    place: Place,
    values: Values,
}

impl Judge<'_> {
    fn note(&mut self, outcome: CommandOutcome, part: &str, rule: Option<&CommandRule>, reason: String) {
        if self.worst.as_ref().is_some_and(|w| w.outcome >= outcome) {
            return;
        }
        self.worst = Some(CommandVerdict {
            outcome,
            part: short(part),
            rule: rule.map(ToString::to_string),
            reason,
        });
    }

    fn limit(&mut self, reason: &str) {
        self.note(CommandOutcome::Deny, self.line, None, reason.into());
    }

    /// Something that cannot be judged. With an allow-list it is denied; without one it is denied or asked about
    /// when a restricted program is named in it, and asked about when it may hide one.
    fn unclear(&mut self, weight: Weight, part: &str, reason: String) {
        let text = match weight {
            Weight::Heavy => self.line,
            Weight::Light => part,
        };
        self.unclear_in(weight, Mention { text, except: "" }, part, reason);
    }

    /// The same, with the text in which a restricted program may be named.
    fn unclear_in(&mut self, weight: Weight, mention: Mention<'_>, part: &str, reason: String) {
        let outcome = if self.default == CommandOutcome::Allow {
            if self.rules.deny.iter().any(|r| mention.names(&r.program)) {
                CommandOutcome::Deny
            } else if weight == Weight::Heavy || self.rules.ask.iter().any(|r| mention.names(&r.program)) {
                CommandOutcome::Ask
            } else {
                CommandOutcome::Allow
            }
        } else {
            CommandOutcome::Deny
        };
        self.note(outcome, part, None, reason);
    }

    fn script(&mut self, text: &str, depth: usize) {
        if depth > MAX_DEPTH {
            self.limit("shells are nested too deeply");
            return;
        }
        let read = || reading::read(text).map(|tree| walk::walk(tree.root_node(), text));
        let walked = match plain::read(text).map_or_else(read, Ok) {
            Ok(walked) => walked,
            Err(why) => {
                self.unclear(Weight::Heavy, text, why.0);
                return;
            }
        };
        if walked.arithmetic.evaluated && walked.arithmetic.quoted_substitution {
            self.unclear(
                Weight::Heavy,
                text,
                "a quoted command may be run when a variable is evaluated".into(),
            );
        }
        if walked.items.iter().any(moves_again) {
            self.place = Place::Unknown;
        }
        self.values.learn(&walked.items);
        for item in walked.items {
            if self.commands > MAX_COMMANDS {
                self.limit("the line holds more than 256 commands");
                return;
            }
            self.item(item, depth);
        }
    }

    fn item(&mut self, item: Item, depth: usize) {
        match item {
            Item::Command(simple) => self.simple(simple, depth),
            Item::Redirect(target) => {
                if let Some(why) = redirect::danger(&target, &self.place) {
                    let part = format!("{} {}", target.operator, target.target.shown());
                    self.unclear(Weight::Light, &part, why);
                }
            }
            Item::Assign(assign) => self.assign(&assign.name, &assign.values, &assign.part),
            Item::Function { name } => self.function(&name),
            Item::Unclear { part, reason } => self.unclear(Weight::Heavy, &part, reason.into()),
        }
    }

    fn assign(&mut self, name: &str, values: &[Word], part: &str) {
        if let Some(why) = environment::danger(name, values) {
            self.unclear(Weight::Light, part, why);
        }
    }

    /// A function with the name of a command that a rule or the shell knows would take its place.
    fn function(&mut self, name: &str) {
        let words = [Word::fixed(name)];
        let all = self
            .rules
            .allow
            .iter()
            .chain(&self.rules.ask)
            .chain(&self.rules.deny);
        let taken = all.into_iter().any(|r| r.program == name)
            || builtins::judge(&words) != Builtin::Other
            || wrappers::see_through(&words).is_some();
        if taken {
            self.unclear(
                Weight::Heavy,
                name,
                format!("a function takes the place of `{name}`"),
            );
        }
    }

    fn simple(&mut self, simple: Simple, depth: usize) {
        let Simple {
            mut words,
            part,
            times: _,
        } = simple;
        self.values.mark(&mut words);
        self.argv(&words, &part, depth);
    }

    fn argv(&mut self, words: &[Word], part: &str, depth: usize) {
        self.commands += 1;
        if depth > MAX_DEPTH || self.commands > MAX_COMMANDS {
            self.limit("commands are nested too deeply or too many");
            return;
        }
        let Some(program) = words.first() else {
            return;
        };
        let Some(name) = program.known() else {
            self.unclear(
                Weight::Heavy,
                part,
                format!("the program `{}` is computed", program.shown()),
            );
            return;
        };
        if program.quoting == Quoting::Bare && RESERVED.contains(&name) {
            self.unclear(Weight::Heavy, part, format!("`{name}` is shell syntax here"));
            return;
        }
        self.restrictions(words, part);
        if let Some(seen) = wrappers::see_through(words) {
            for inner in seen.inner {
                self.inner(inner, part, depth + 1);
            }
            // `./env` is not `env`: a wrapper from elsewhere needs a rule, whatever it claims to start.
            if seen.own == Own::Through && system_name(name).is_some() {
                return;
            }
        }
        match builtins::judge(words) {
            Builtin::Harmless => self.note(
                CommandOutcome::Allow,
                part,
                None,
                format!("`{name}` needs no rule"),
            ),
            Builtin::MovesTo(target) => {
                self.place.enter(target.as_ref());
                self.note(
                    CommandOutcome::Allow,
                    part,
                    None,
                    format!("`{name}` needs no rule"),
                );
            }
            Builtin::Refused(why) => self.permitted(words, part, Some(why)),
            Builtin::Other => self.permitted(words, part, None),
        }
    }

    fn inner(&mut self, inner: Inner, part: &str, depth: usize) {
        match inner {
            Inner::Argv(words) => self.argv(&words, part, depth),
            Inner::Script(text) => self.script(&text, depth),
            Inner::Sets(name, value) => self.assign(&name, &[value], part),
            Inner::Unclear(why) => self.unclear(Weight::Heavy, part, why),
        }
    }

    fn restrictions(&mut self, words: &[Word], part: &str) {
        let rules = self.rules;
        let Some(program) = words.first().and_then(Word::known) else {
            return;
        };
        for (list, outcome) in [
            (&rules.deny, CommandOutcome::Deny),
            (&rules.ask, CommandOutcome::Ask),
        ] {
            for rule in list.iter().filter(|rule| rule.is_about(program)) {
                match rule.restricts(words) {
                    Match::Yes => {
                        self.note(outcome, part, Some(rule), format!("the rule `{rule}` covers it"))
                    }
                    Match::Maybe => {
                        let outcome = if self.default == CommandOutcome::Allow {
                            CommandOutcome::Ask
                        } else {
                            outcome
                        };
                        self.note(
                            outcome,
                            part,
                            Some(rule),
                            format!("the rule `{rule}` may cover it: a word is computed"),
                        );
                    }
                    Match::No => {}
                }
            }
        }
    }

    /// Whether a rule allows the command, with the arguments it has.
    fn permitted(&mut self, words: &[Word], part: &str, refused: Option<String>) {
        let rules = self.rules;
        let dangers = dangers::dangers(words, &self.place);
        let plain = dangers::plain_form(words, &self.place);
        let allowing = || {
            rules
                .allow
                .iter()
                .filter(|r| r.allows(&plain) && width::too_wide(r).is_none())
        };
        let clean = allowing().find(|r| refused.is_none() && dangers.iter().all(|d| r.names(&d.word)));
        if let Some(rule) = clean {
            self.note(
                CommandOutcome::Allow,
                part,
                Some(rule),
                format!("the rule `{rule}` allows it"),
            );
            return;
        }
        // The program itself has been judged by its own rules; here the question is what else the text names.
        let except = base(words.first().and_then(Word::known).unwrap_or(""));
        let args = word::shown(words.get(1..).unwrap_or(&[]));
        let computed = words.iter().any(|w| w.known().is_none());
        if let Some(why) = refused {
            // It acts on what the rest of the line says.
            self.unclear_in(
                Weight::Light,
                Mention {
                    text: self.line,
                    except,
                },
                part,
                why,
            );
            return;
        }
        if let Some(danger) = dangers.into_iter().next() {
            let text = if computed { self.line } else { &args };
            self.unclear_in(Weight::Light, Mention { text, except }, part, danger.reason);
            return;
        }
        if self.runs_code(words) {
            // Without a file the code comes from standard input, which any part of the line may feed.
            let file = words.iter().skip(1).any(|w| !w.text.starts_with('-'));
            let text = if file { part } else { self.line };
            let why = format!("`{except}` runs code that is not judged");
            self.unclear_in(Weight::Light, Mention { text, except }, part, why);
            return;
        }
        let asked = |r: &CommandRule| match self.default {
            CommandOutcome::Allow => r.restricts(words) == Match::Yes,
            CommandOutcome::Ask | CommandOutcome::Deny => r.begins(&plain),
        };
        if rules.ask.iter().any(asked) {
            // A person will be asked: that is an answer, and it has been noted.
            return;
        }
        let shown = word::shown(words.get(..1).unwrap_or(&[]));
        let reason = match self.default {
            CommandOutcome::Allow => format!("no rule restricts `{shown}`"),
            CommandOutcome::Ask | CommandOutcome::Deny => {
                format!("no rule allows `{shown}` with these arguments")
            }
        };
        self.note(self.default, part, None, reason);
    }

    /// Code in another language, whose text may name a restricted program.
    fn runs_code(&self, words: &[Word]) -> bool {
        let name = base(words.first().and_then(Word::known).unwrap_or(""));
        self.default == CommandOutcome::Allow && (SHELLS.contains(&name) || width::interpreter(name))
    }
}

/// A change of directory that also holds for text before it.
fn moves_again(item: &Item) -> bool {
    match item {
        Item::Command(simple) => {
            simple.times == Times::Again
                && simple.words.first().is_some_and(|w| {
                    matches!(
                        w.text.as_str(),
                        "cd" | "pushd" | "popd" | "eval" | "builtin" | "command"
                    )
                })
        }
        Item::Redirect(_) | Item::Assign(_) | Item::Function { .. } | Item::Unclear { .. } => false,
    }
}

/// A text in which a restricted program may be named.
#[derive(Clone, Copy)]
struct Mention<'t> {
    text: &'t str,
    /// A program that does not count.
    except: &'t str,
}

impl Mention<'_> {
    /// Whether the text names the program, also with quotes and backslashes in between.
    fn names(self, program: &str) -> bool {
        let name = base(program);
        if name == self.except {
            return false;
        }
        let plain: String = self
            .text
            .chars()
            .filter(|c| !matches!(c, '\\' | '"' | '\''))
            .collect();
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        plain.match_indices(name).any(|(at, _)| {
            let before = plain.get(..at).and_then(|t| t.chars().next_back());
            let after = plain.get(at + name.len()..).and_then(|t| t.chars().next());
            !before.is_some_and(word) && !after.is_some_and(word)
        })
    }
}

fn short(text: &str) -> String {
    if text.len() <= MAX_SHOWN {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(MAX_SHOWN).collect();
    out.push('…');
    out
}
