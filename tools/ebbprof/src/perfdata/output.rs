// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a perf.data file is written: to a new file of this user alone, with the older one beside it. It
//! imports nothing, as `make check` runs its tests on the host.

use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

/// Creates the file at `path`, to be read and written by its user alone: samples have addresses, and
/// names of others' files. One that is there, and has something, is kept as [`old`], as `perf record`
/// does.
///
/// No symbolic link is followed: in a folder where others may write, it leads to a file of their choice.
///
/// # Errors
///
/// `ELOOP` for a symbolic link, `EEXIST` for what is neither a file nor a device, else what the system has.
pub fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let options = options.read(true).write(true).mode(0o600);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(data) if data.is_file() && data.len() != 0 => fs::rename(path, old(path))?,
        Ok(data) if data.is_file() => fs::remove_file(path)?,
        Ok(data) if data.file_type().is_char_device() => {
            let file = options.open(path)?;
            let is_device = file.metadata()?.file_type().is_char_device();
            let other = Err(io::Error::from_raw_os_error(EEXIST));
            return if is_device { Ok(file) } else { other };
        }
        Ok(data) => {
            let errno = if data.is_symlink() { ELOOP } else { EEXIST };
            return Err(io::Error::from_raw_os_error(errno));
        }
    }
    // Whatever another process may have put there since is an error.
    options.create_new(true).open(path)
}

/// As Linux has them on all machines.
const EEXIST: i32 = 17;
const ELOOP: i32 = 40;

/// Returns the name that an older file is kept by.
fn old(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".old");
    name.into()
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs;
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::process;

    use super::ELOOP;
    use super::create;
    use super::old;

    /// An empty folder.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("output-{name}-{}", process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn mode(file: &File) -> u32 {
        file.metadata().unwrap().permissions().mode()
    }

    #[test]
    fn file_is_its_users_alone() {
        let folder = Folder::new("mode");
        let path = folder.0.join("data");
        assert_eq!(mode(&create(&path).unwrap()) & 0o777, 0o600);
    }

    #[test]
    fn older_file_is_kept() {
        let folder = Folder::new("old");
        let path = folder.0.join("data");
        for text in ["first", "second", "third"] {
            let mut file = create(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), b"third");
        assert_eq!(fs::read(old(&path)).unwrap(), b"second");
        // One without anything is no loss, and takes no other one's place.
        drop(create(&path).unwrap());
        drop(create(&path).unwrap());
        assert_eq!(fs::read(old(&path)).unwrap(), b"third");
    }

    #[test]
    fn mode_of_an_older_file_is_not_taken_over() {
        let folder = Folder::new("world");
        let path = folder.0.join("data");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(mode(&create(&path).unwrap()) & 0o777, 0o600);
    }

    #[test]
    fn links_are_not_followed() {
        let folder = Folder::new("link");
        let (path, target) = (folder.0.join("data"), folder.0.join("target"));
        for content in [None, Some("something")] {
            if let Some(content) = content {
                fs::write(&target, content).unwrap();
            }
            symlink(&target, &path).unwrap();
            let error = create(&path).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(ELOOP));
            assert_eq!(
                fs::read(&target).ok(),
                content.map(|text| text.as_bytes().to_vec())
            );
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn devices_stay_folders_are_refused() {
        create("/dev/null".as_ref())
            .unwrap()
            .write_all(b"x")
            .unwrap();
        let folder = Folder::new("folder");
        assert!(create(&folder.0).is_err());
    }
}
