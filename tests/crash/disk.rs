//! A model of the disk below some directories: what is still there when the power goes.
//!
//! It looks at the directories before every call of a program. A change of names is durable once a directory that it touches was
//! synced, the bytes of a file once the file was; a change of names that is durable brings the earlier ones that it rests on. All
//! others are on disk or not, each by itself, and a rename is one change.
use super::calls::{Stopped, Witness};
use super::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, FileTimes, Metadata, Permissions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// An inode: the numbers of removed ones are used again.
type Key = (u64, u64, Option<SystemTime>);

/// What is in which directory.
type Names = BTreeMap<(Key, OsString), Key>;

/// What of that which was not synced is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    Everything,
    /// Some of it, drawn with this seed.
    Some(u64),
}

struct Object {
    meta: Metadata,
    /// The bytes of a file, or what a link says.
    bytes: Vec<u8>,
    /// The bytes that are on disk; none of a file that was never synced.
    durable: Option<Vec<u8>>,
}

/// Names that change together.
struct Change {
    sets: Vec<((Key, OsString), Option<Key>)>,
    objects: BTreeSet<Key>,
    durable: bool,
}

impl Change {
    fn show(&self) -> String {
        let one = |((directory, name), object): &((Key, OsString), Option<Key>)| {
            let inode = object.map_or(0, |(_, inode, _)| inode);
            format!("{}/{}={inode}", directory.1, name.display())
        };
        self.sets.iter().map(one).collect::<Vec<_>>().join(" ")
    }
}

/// The disk.
pub(crate) struct Disk {
    roots: Vec<PathBuf>,
    /// A directory of the same file system, for objects that have no name for a moment.
    limbo: PathBuf,
    objects: BTreeMap<Key, Object>,
    first: Names,
    names: Names,
    changes: Vec<Change>,
}

fn key_of(meta: &Metadata) -> Key {
    (meta.dev(), meta.ino(), meta.created().ok())
}

fn read(path: &Path, meta: &Metadata) -> Option<Vec<u8>> {
    if meta.is_symlink() {
        return Some(fs::read_link(path).ok()?.as_os_str().as_bytes().to_vec());
    }
    if meta.is_file() {
        return fs::read(path).ok();
    }
    Some(Vec::new())
}

impl Disk {
    /// Everything that is there is durable.
    pub(crate) fn of(roots: Vec<PathBuf>, limbo: PathBuf) -> Self {
        let mut disk = Self {
            roots,
            limbo,
            objects: BTreeMap::new(),
            first: Names::new(),
            names: Names::new(),
            changes: Vec::new(),
        };
        disk.first = disk.look();
        disk.names = disk.first.clone();
        for object in disk.objects.values_mut() {
            object.durable = Some(object.bytes.clone());
        }
        disk
    }

    fn look(&mut self) -> Names {
        let mut names = Names::new();
        for root in self.roots.clone() {
            if let Some(key) = self.meet(&root) {
                self.collect(&root, key, &mut names);
            }
        }
        names
    }

    /// Takes an object's state; none when it is gone.
    fn meet(&mut self, path: &Path) -> Option<Key> {
        let meta = path.symlink_metadata().ok()?;
        let key = key_of(&meta);
        let stamp = |meta: &Metadata| (meta.ctime(), meta.ctime_nsec(), meta.len());
        let same = |object: &Object| stamp(&object.meta) == stamp(&meta);
        // Within one tick of the clock a file can change without a new time.
        let small = meta.len() < 1 << 16;
        if small || !self.objects.get(&key).is_some_and(same) {
            let bytes = read(path, &meta)?;
            let durable = self.objects.remove(&key).and_then(|object| object.durable);
            self.objects.insert(key, Object { meta, bytes, durable });
        }
        Some(key)
    }

    fn collect(&mut self, directory: &Path, of: Key, names: &mut Names) {
        let Ok(listing) = fs::read_dir(directory) else {
            return;
        };
        for entry in listing.flatten() {
            let path = entry.path();
            let Some(key) = self.meet(&path) else { continue };
            names.insert((of, entry.file_name()), key);
            if self.objects[&key].meta.is_dir() {
                self.collect(&path, key, names);
            }
        }
    }

    /// Notes what changed since the last look. What shares an object changed at once: a rename, an exchange.
    fn catch_up(&mut self) {
        let now = self.look();
        let mut groups: Vec<Change> = Vec::new();
        let places: BTreeSet<&(Key, OsString)> = self.names.keys().chain(now.keys()).collect();
        for place in places {
            let (old, new) = (self.names.get(place), now.get(place));
            if old == new {
                continue;
            }
            let mut one = Change {
                sets: vec![(place.clone(), new.copied())],
                objects: old.into_iter().chain(new).copied().collect(),
                durable: false,
            };
            let (shared, others) = groups
                .into_iter()
                .partition(|group| !group.objects.is_disjoint(&one.objects));
            groups = others;
            for mut group in shared {
                one.sets.append(&mut group.sets);
                one.objects.append(&mut group.objects);
            }
            groups.push(one);
        }
        self.changes.append(&mut groups);
        self.names = now;
    }

    fn sync(&mut self, key: Key, bytes: Option<Vec<u8>>) {
        match bytes {
            None => {
                for change in &mut self.changes {
                    change.durable |= change.sets.iter().any(|((directory, _), _)| *directory == key);
                }
                close(&mut self.changes);
            }
            Some(bytes) => {
                if let Some(object) = self.objects.get_mut(&key) {
                    object.durable = Some(bytes);
                }
            }
        }
    }

    fn sync_all(&mut self) {
        self.changes.iter_mut().for_each(|change| change.durable = true);
        for object in self.objects.values_mut() {
            object.durable = Some(object.bytes.clone());
        }
    }

    /// Makes the directories what is on disk after the power went; gives what is lost, for people.
    pub(crate) fn cut(mut self, loss: Loss) -> Vec<String> {
        self.catch_up();
        let mut random = Random::new(match loss {
            Loss::Everything => 0,
            Loss::Some(seed) => seed,
        });
        let mut survives = || loss != Loss::Everything && random.below(2) == 0;
        for change in &mut self.changes {
            change.durable |= survives();
        }
        close(&mut self.changes);
        let mut told: Vec<String> = self
            .changes
            .iter()
            .filter(|one| !one.durable)
            .map(Change::show)
            .collect();
        let mut wanted = self.first.clone();
        for (place, object) in self
            .changes
            .iter()
            .filter(|change| change.durable)
            .flat_map(|change| &change.sets)
        {
            match object {
                Some(object) => drop(wanted.insert(place.clone(), *object)),
                None => drop(wanted.remove(place)),
            }
        }
        for object in self.objects.values_mut().filter(|object| object.meta.is_file()) {
            let lost = object.durable.as_ref() != Some(&object.bytes) && !survives();
            if lost {
                told.push(format!("bytes of inode {}", object.meta.ino()));
                object.bytes = object.durable.clone().unwrap_or_default();
            }
        }
        self.detach(&wanted);
        for root in self.roots.clone() {
            if let Ok(meta) = root.symlink_metadata() {
                self.attach(&root, key_of(&meta), &wanted);
            }
        }
        fs::remove_dir_all(&self.limbo).expect("own directory");
        told
    }

    /// Moves away what is not where it is to be; deepest first, so that paths stay as they are.
    fn detach(&self, wanted: &Names) {
        fs::create_dir(&self.limbo).expect("a fresh place");
        for root in &self.roots {
            if let Ok(meta) = root.symlink_metadata() {
                self.detach_below(root, key_of(&meta), wanted);
            }
        }
    }

    fn detach_below(&self, directory: &Path, of: Key, wanted: &Names) {
        for entry in fs::read_dir(directory).expect("is there") {
            let path = entry.expect("can be listed").path();
            let meta = path.symlink_metadata().expect("is there");
            let key = key_of(&meta);
            if meta.is_dir() {
                self.detach_below(&path, key, wanted);
            }
            let name = path.file_name().expect("below a directory").to_owned();
            if wanted.get(&(of, name)) == Some(&key) {
                continue;
            }
            let to = self.limbo(key);
            // Another name of a file that lies there already.
            match to.symlink_metadata().is_ok() {
                true => fs::remove_file(&path).expect("own file"),
                false => fs::rename(&path, &to).expect("own file"),
            }
        }
    }

    fn limbo(&self, key: Key) -> PathBuf {
        self.limbo.join(format!("{}-{}-{:?}", key.0, key.1, key.2))
    }

    fn attach(&self, directory: &Path, of: Key, wanted: &Names) {
        let here = wanted
            .range((of, OsString::new())..)
            .take_while(|((one, _), _)| *one == of);
        for ((_, name), key) in here {
            let path = directory.join(name);
            let object = &self.objects[key];
            let limbo = self.limbo(*key);
            let away = limbo.symlink_metadata().is_ok();
            if path.symlink_metadata().is_err() {
                match (away, object.meta.is_dir()) {
                    (true, true) => fs::rename(&limbo, &path).expect("own directory"),
                    (true, false) => fs::hard_link(&limbo, &path).expect("own file"),
                    (false, _) => make(&path, object),
                }
            }
            if object.meta.is_dir() {
                self.attach(&path, *key, wanted);
            } else if object.meta.is_file() {
                fill(&path, object);
            }
        }
    }
}

/// What a durable change rests on is durable, too.
fn close(changes: &mut [Change]) {
    for at in (0..changes.len()).rev() {
        if !changes[at].durable {
            continue;
        }
        let (before, rest) = changes.split_at_mut(at);
        let one = &rest[0];
        for earlier in before.iter_mut() {
            let same_place = |set: &((Key, OsString), _)| one.sets.iter().any(|(place, _)| *place == set.0);
            earlier.durable |=
                !earlier.objects.is_disjoint(&one.objects) || earlier.sets.iter().any(same_place);
        }
    }
}

/// Makes again what was removed.
fn make(path: &Path, object: &Object) {
    let meta = &object.meta;
    if meta.is_dir() {
        fs::create_dir(path).expect("can be made");
    } else if meta.is_symlink() {
        symlink(std::ffi::OsStr::from_bytes(&object.bytes), path).expect("can be made");
    } else {
        fs::write(path, &object.bytes).expect("can be written");
    }
    lchown(path, Some(meta.uid()), Some(meta.gid())).expect("as before");
    if !meta.is_symlink() {
        fs::set_permissions(path, Permissions::from_mode(meta.mode() & 0o7777)).expect("own file");
    }
}

fn fill(path: &Path, object: &Object) {
    if fs::read(path).expect("own file") == object.bytes {
        return;
    }
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("own file");
    fs::write(path, &object.bytes).expect("own file");
    let times = FileTimes::new().set_modified(object.meta.modified().expect("known"));
    File::options()
        .write(true)
        .open(path)
        .and_then(|file| file.set_times(times))
        .expect("own file");
    fs::set_permissions(path, Permissions::from_mode(object.meta.mode() & 0o7777)).expect("own file");
}

impl Witness for Disk {
    fn before(&mut self, call: &Stopped<'_>) {
        self.catch_up();
        match call.name {
            "syncfs" => self.sync_all(),
            "fsync" | "fdatasync" => {
                // The file itself: it need not have a name.
                let Ok(mut file) = File::open(call.behind_descriptor) else {
                    return;
                };
                let meta = file.metadata().expect("is open");
                let key = key_of(&meta);
                if meta.is_dir() {
                    self.sync(key, None);
                    return;
                }
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).expect("can be read");
                self.objects.entry(key).or_insert_with(|| Object {
                    meta,
                    bytes: bytes.clone(),
                    durable: None,
                });
                self.sync(key, Some(bytes));
            }
            _ => {}
        }
    }
}
