//! What the run has used of its limits. Pure counting: asked before an act, told after it.
//!
//! init serves one call at a time, so nothing happens between asking and telling.
use bastle_contract::{LaunchPlan, LimitKind, LimitMechanism, LimitRule};
use std::collections::{HashMap, HashSet};

/// Files kept apart when no limit on them says how many there can be: a few MiB. Later ones count each time.
const FILES_REMEMBERED: usize = 1 << 16;
/// The same with a limit: about 100 MiB of the run's own memory limit, at four million changed files.
const FILES_REMEMBERED_MOST: usize = 1 << 22;
/// Sparse files whose size is paid for ahead of their blocks.
const CREDITS: usize = 4096;

/// What file systems hand out at a time.
const BLOCK: u64 = 4096;

/// One file, whatever its names are.
pub(super) type FileId = (u64, u64);

/// A limit that has no room left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Over {
    pub(super) limit: LimitKind,
    pub(super) value: u64,
}

/// A file's size and how much of it has blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) size: u64,
    allocated: u64,
}

/// The counts.
#[derive(Debug)]
pub(super) struct Ledger {
    most_bytes: Option<u64>,
    most_disk: Option<u64>,
    most_created: Option<u64>,
    most_files: Option<u64>,
    bytes: u64,
    disk: u64,
    created: u64,
    files: u64,
    seen: HashSet<FileId>,
    credit: HashMap<FileId, u64>,
    reserve: Option<LimitRule>,
}

impl Extent {
    pub(super) fn of(stat: &rustix::fs::Stat) -> Self {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let blocks = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
        // Less than a block is no hole: small files may live in their inode. And the last block is rounded up.
        let allocated = if size.saturating_sub(blocks) < BLOCK {
            size
        } else {
            blocks
        };
        Self { size, allocated }
    }

    /// Bytes of the size that have no block yet.
    pub(super) fn hole(&self) -> u64 {
        self.size - self.allocated
    }
}

impl Ledger {
    pub(super) fn of(plan: &LaunchPlan) -> Self {
        let most = |limit| {
            plan.limit(limit).and_then(|rule| match rule.mechanism {
                LimitMechanism::WriteGuard | LimitMechanism::TmpfsAndWriteGuard => Some(rule.value),
                LimitMechanism::CgroupV2
                | LimitMechanism::CgroupV1
                | LimitMechanism::Rlimit
                | LimitMechanism::RlimitAndWatchdog
                | LimitMechanism::Affinity
                | LimitMechanism::Tmpfs
                | LimitMechanism::Relay
                | LimitMechanism::Timer
                | LimitMechanism::Watchdog
                | LimitMechanism::FreeSpace
                | LimitMechanism::FreeSpaceShare
                | LimitMechanism::Waived => None,
            })
        };
        Self {
            most_bytes: most(LimitKind::BytesWritten),
            most_disk: most(LimitKind::Disk),
            most_created: most(LimitKind::Inodes),
            most_files: most(LimitKind::Files),
            bytes: 0,
            disk: 0,
            created: 0,
            files: 0,
            seen: HashSet::new(),
            credit: HashMap::new(),
            reserve: plan.limit(LimitKind::DiskReserve).copied(),
        }
    }

    /// Whether so many bytes fit above the disk reserve of a file system with this size and so much left.
    pub(super) fn leaves_reserve(&self, size: u64, free: u64, bytes: u64) -> bool {
        match self.reserve.and_then(|rule| rule.kept_free(size)) {
            Some(kept) => free.saturating_sub(bytes) >= kept,
            None => true,
        }
    }

    /// Whether one more name and file may come into being.
    pub(super) fn may_create(&self) -> Result<(), Over> {
        within(LimitKind::Inodes, self.most_created, self.created, 1)?;
        within(LimitKind::Files, self.most_files, self.files, 1)
    }

    /// Whether one more name for a file may come into being.
    pub(super) fn may_name(&self, file: FileId) -> Result<(), Over> {
        within(LimitKind::Inodes, self.most_created, self.created, 1)?;
        self.may_change(&[file])
    }

    /// Whether these may be changed.
    pub(super) fn may_change(&self, files: &[FileId]) -> Result<(), Over> {
        let fresh = files.iter().filter(|file| !self.seen.contains(*file)).count();
        if fresh == 0 {
            Ok(())
        } else {
            within(LimitKind::Files, self.most_files, self.files, fresh as u64)
        }
    }

    /// A new file came into being: it counts as one even under an inode number that was seen before.
    pub(super) fn created(&mut self, file: FileId) {
        self.created += 1;
        self.files += 1;
        self.remember(file);
    }

    /// A new name for an existing file came into being.
    pub(super) fn named(&mut self, file: FileId) {
        self.created += 1;
        self.changed(&[file]);
    }

    /// These were opened for writing, written, renamed or removed.
    pub(super) fn changed(&mut self, files: &[FileId]) {
        for file in files {
            if !self.seen.contains(file) {
                self.files += 1;
                self.remember(*file);
            }
        }
    }

    fn remember(&mut self, file: FileId) {
        let wanted = self.most_files.map_or(FILES_REMEMBERED, |most| {
            usize::try_from(most).unwrap_or(usize::MAX)
        });
        if self.seen.len() < wanted.min(FILES_REMEMBERED_MOST) {
            self.seen.insert(file);
        }
    }

    /// How many of `count` bytes may be written at `start` of a file; none left is an error.
    pub(super) fn may_write(
        &self,
        file: FileId,
        extent: Extent,
        start: u64,
        count: u64,
    ) -> Result<u64, Over> {
        let bytes = self
            .most_bytes
            .map_or(count, |most| count.min(most.saturating_sub(self.bytes)));
        if bytes == 0 && count > 0 {
            return Err(Over {
                limit: LimitKind::BytesWritten,
                value: self.most_bytes.unwrap_or_default(),
            });
        }
        let Some(most) = self.most_disk else {
            return Ok(bytes);
        };
        let room = most.saturating_sub(self.disk);
        // What lies within the size may fill a hole; how much of it does is known afterwards only.
        let inside = bytes.min(extent.size.saturating_sub(start));
        let fills = inside.min(
            extent
                .hole()
                .saturating_sub(self.credit.get(&file).copied().unwrap_or(0)),
        );
        let fits = if fills > room {
            room
        } else {
            // The size grows from its present end: a gap before `start` is part of the growth.
            let end = extent.size.saturating_add(room - fills);
            bytes.min(end.saturating_sub(start))
        };
        if fits == 0 && count > 0 {
            Err(Over {
                limit: LimitKind::Disk,
                value: most,
            })
        } else {
            Ok(fits)
        }
    }

    /// Whether `grown` bytes may be added to a file.
    pub(super) fn may_grow(&self, grown: u64) -> Result<(), Over> {
        if grown == 0 {
            Ok(())
        } else {
            within(LimitKind::Disk, self.most_disk, self.disk, grown)
        }
    }

    /// Whether `count` more bytes may be written through a mapping, and counts them.
    pub(super) fn map(&mut self, count: u64) -> Result<(), Over> {
        within(LimitKind::BytesWritten, self.most_bytes, self.bytes, count)?;
        self.bytes += count;
        Ok(())
    }

    /// `count` bytes were written and took a file from `before` to `after`.
    pub(super) fn wrote(&mut self, file: FileId, count: u64, before: Extent, after: Extent) {
        self.bytes = self.bytes.saturating_add(count);
        let grown = after.size.saturating_sub(before.size);
        let blocks = after.allocated.saturating_sub(before.allocated);
        self.grew(file, grown, grown.saturating_sub(blocks));
        // Filling a hole takes blocks without changing the size; a hole the run made itself is paid for already.
        let filled = self.spend(file, blocks.saturating_sub(grown));
        self.disk = self.disk.saturating_add(filled);
    }

    /// A file grew by `grown`, of which `sparse` bytes have no blocks yet: they are paid for when they get them.
    pub(super) fn grew(&mut self, file: FileId, grown: u64, sparse: u64) {
        self.disk = self.disk.saturating_add(grown);
        if sparse > 0 && (self.credit.len() < CREDITS || self.credit.contains_key(&file)) {
            let credit = self.credit.entry(file).or_default();
            *credit = credit.saturating_add(sparse);
        }
    }

    /// What remains to be charged of `filled` bytes after the file's credit.
    fn spend(&mut self, file: FileId, filled: u64) -> u64 {
        if filled == 0 {
            return 0;
        }
        let Some(credit) = self.credit.get_mut(&file) else {
            return filled;
        };
        let spent = filled.min(*credit);
        *credit -= spent;
        if *credit == 0 {
            self.credit.remove(&file);
        }
        filled - spent
    }

    pub(super) fn usage(&self) -> super::GuardUsage {
        super::GuardUsage {
            bytes_written: self.bytes,
            created: self.created,
            files: self.files,
        }
    }
}

fn within(limit: LimitKind, most: Option<u64>, used: u64, more: u64) -> Result<(), Over> {
    match most {
        Some(value) if used.saturating_add(more) > value => Err(Over { limit, value }),
        Some(_) | None => Ok(()),
    }
}
