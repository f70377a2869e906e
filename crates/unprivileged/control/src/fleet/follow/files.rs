//! What the kernel tells about files: which grew, and which runs appeared.
use super::Follower;
use crate::fleet::adopt;
use crate::fleet::words::either_way;
use crate::runs::{RunDir, run_of_findings, with_findings};
use bastle_contract::RunId;
use rustix::fs::inotify;
use std::collections::BTreeSet;
use std::mem::MaybeUninit;

impl Follower {
    /// Which files grew, and which runs appeared.
    pub(super) fn files(&mut self, dirty: &mut BTreeSet<RunId>) -> std::io::Result<()> {
        let mut appeared = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let overflow = loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(rustix::io::Errno::WOULDBLOCK) => break false,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW) {
                break true;
            }
            let wd = event.wd();
            if let Some(name) = self.watches.get(&wd) {
                dirty.insert(name.clone());
            } else if let Some(name) = self.unborn.get(&wd) {
                appeared.push(name.clone());
            } else if self.findings == Some(wd) {
                let name = event.file_name().and_then(|name| name.to_str().ok());
                self.unusual.extend(name.and_then(run_of_findings));
            } else if self.all == Some(wd) {
                let name = event.file_name().and_then(|name| name.to_str().ok());
                appeared.extend(name.and_then(|name| RunId::try_from(name.to_owned()).ok()));
            }
        };
        if overflow {
            // The kernel lost some: look at everything once.
            dirty.extend(self.runs.keys().cloned());
            self.unusual.extend(with_findings(&self.inner.options.state));
            appeared.extend(
                RunDir::all(&self.inner.options.state)
                    .iter()
                    .map(|dir| dir.name().clone()),
            );
        }
        for name in appeared {
            self.appeared(&name, dirty);
        }
        Ok(())
    }

    /// A directory of a run appeared: one of somebody else's is taken in once its request is whole.
    fn appeared(&mut self, name: &RunId, dirty: &mut BTreeSet<RunId>) {
        if self.runs.contains_key(name) {
            return;
        }
        let state = &self.inner.options.state;
        match RunDir::open(state, name) {
            Ok(dir) => {
                self.born(name);
                match adopt::unknown(&self.inner, &dir) {
                    Ok(true) => {
                        self.follow(name, None);
                        dirty.insert(name.clone());
                    }
                    // Known: whoever started it says when it is to be followed.
                    Ok(false) => {}
                    Err(fault) => self.inner.trouble(&fault.to_string()),
                }
            }
            Err(_) if self.unborn.values().any(|unborn| unborn == name) => {}
            Err(_) => {
                let path = state.join("runs").join(name.as_str());
                let flags = inotify::WatchFlags::MOVED_TO;
                if let Ok(wd) = inotify::add_watch(&self.inotify, &path, flags) {
                    self.unborn.insert(wd, name.clone());
                    // It may have become whole before it was watched.
                    if RunDir::open(state, name).is_ok() {
                        self.appeared(name, dirty);
                    }
                }
            }
        }
    }

    fn born(&mut self, name: &RunId) {
        let wds: Vec<i32> = self
            .unborn
            .iter()
            .filter(|(_, n)| *n == name)
            .map(|(wd, _)| *wd)
            .collect();
        for wd in wds {
            self.unborn.remove(&wd);
            either_way(inotify::remove_watch(&self.inotify, wd));
        }
    }
}
