// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creation of the output file: a new file that only its user may access, with the older one
//! renamed. Imports nothing, so that `make check` can run its tests on the host.

use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

/// Creates the file at `path`, which only its user may read and write, because samples contain
/// addresses and names of files. An existing file that is not empty is renamed to [`old`], as by
/// `perf record`.
///
/// Symbolic links are not followed: in a folder where other users may write, one could lead to a
/// file of their choice.
///
/// # Errors
///
/// `ELOOP` for a symbolic link, `EEXIST` if `path` is neither a file nor a device, else the errno
/// of the system call.
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
    // Fails if another process has created something there in the meantime.
    options.create_new(true).open(path)
}

/// Values of Linux on all architectures.
const EEXIST: i32 = 17;
const ELOOP: i32 = 40;

/// Returns the name to which an older file is renamed.
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
        // An empty file is not kept, and does not replace an older one.
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
