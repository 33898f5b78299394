//! The bearer token of a service account, in a file that the kubelet replaces about once an hour.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::future::{Either, Ready, ready};
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use tower::{BoxError, Layer, Service};

/// The token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The file holds no token: nothing, or octets that no header may have.
    #[error("the token file {} holds no token", path.display())]
    Content {
        /// The file.
        path: PathBuf,
    },
}

/// What tells a replaced file from the one that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

/// Reads a token file again whenever it is another one. Clones share what was read.
#[derive(Debug, Clone)]
pub struct TokenFile {
    path: Arc<Path>,
    read: Arc<Mutex<Option<(Stamp, HeaderValue)>>>,
}

impl TokenFile {
    /// Nothing is read yet; the file may still be missing.
    pub fn new(path: impl Into<PathBuf>) -> TokenFile {
        TokenFile { path: path.into().into(), read: Arc::default() }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The value of the header `Authorization`. When the file cannot be read the token read before serves on: the
    /// server is the one that decides whether it is still good.
    ///
    /// # Errors
    /// There was never a token.
    pub fn header(&self) -> Result<HeaderValue, TokenError> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        match self.newer(read.as_ref().map(|(stamp, _)| *stamp)) {
            Ok(None) => {}
            Ok(Some(newer)) => *read = Some(newer),
            Err(error) if read.is_none() => return Err(error),
            Err(error) => {
                tracing::debug!(error = %koord_runtime::error_chain::Chain(&error), "the token read before is used");
            }
        }
        match &*read {
            Some((_, header)) => Ok(header.clone()),
            None => Err(TokenError::Content { path: self.path.to_path_buf() }),
        }
    }

    fn newer(&self, known: Option<Stamp>) -> Result<Option<(Stamp, HeaderValue)>, TokenError> {
        let failed = |source| TokenError::Read { path: self.path.to_path_buf(), source };
        // A stat per request; the file is in memory, and it is read about once an hour.
        let metadata = fs::metadata(&self.path).map_err(failed)?;
        let stamp = Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        if known == Some(stamp) {
            return Ok(None);
        }
        let text = fs::read_to_string(&self.path).map_err(failed)?;
        let token = text.trim();
        let header = HeaderValue::try_from(format!("Bearer {token}"));
        match header {
            Ok(mut header) if !token.is_empty() => {
                header.set_sensitive(true);
                Ok(Some((stamp, header)))
            }
            _ => Err(TokenError::Content { path: self.path.to_path_buf() }),
        }
    }
}

/// Adds the token to each request.
#[derive(Debug, Clone)]
pub struct TokenLayer {
    file: TokenFile,
}

impl TokenLayer {
    /// A layer that reads `file`.
    pub fn new(file: TokenFile) -> TokenLayer {
        TokenLayer { file }
    }
}

impl<S> Layer<S> for TokenLayer {
    type Service = WithToken<S>;

    fn layer(&self, inner: S) -> WithToken<S> {
        WithToken { inner, file: self.file.clone() }
    }
}

/// The service of [`TokenLayer`].
#[derive(Debug, Clone)]
pub struct WithToken<S> {
    inner: S,
    file: TokenFile,
}

impl<S, B> Service<Request<B>> for WithToken<S>
where
    S: Service<Request<B>, Error = BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Either<S::Future, Ready<Result<S::Response, BoxError>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match self.file.header() {
            Ok(header) => {
                request.headers_mut().insert(AUTHORIZATION, header);
                Either::Left(self.inner.call(request))
            }
            Err(error) => Either::Right(ready(Err(error.into()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(file: &TokenFile) -> Result<String, String> {
        file.header().map(|value| value.to_str().unwrap().to_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_replaced_file_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let file = TokenFile::new(&path);
        assert_eq!(text(&file), Err(format!("cannot read the token file {}", path.display())));
        fs::write(&path, "one\n").unwrap();
        assert_eq!(text(&file), Ok("Bearer one".into()));
        // As the kubelet does: the link to the folder of the volume is renamed.
        fs::write(folder.path().join("new"), "two").unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        assert_eq!(text(&file), Ok("Bearer two".into()));
        assert_eq!(text(&file.clone()), Ok("Bearer two".into()));
    }

    #[test]
    fn a_broken_file_leaves_the_token_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let file = TokenFile::new(&path);
        fs::write(&path, " ").unwrap();
        assert_eq!(text(&file), Err(format!("the token file {} holds no token", path.display())));
        fs::write(&path, "a\nb").unwrap();
        assert_eq!(text(&file), Err(format!("the token file {} holds no token", path.display())));
        fs::write(&path, "good").unwrap();
        assert_eq!(text(&file), Ok("Bearer good".into()));
        fs::write(&path, "").unwrap();
        assert_eq!(text(&file), Ok("Bearer good".into()));
        fs::remove_file(&path).unwrap();
        assert_eq!(text(&file), Ok("Bearer good".into()));
    }

    #[test]
    fn the_token_is_in_no_debug_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "very-secret").unwrap();
        let file = TokenFile::new(&path);
        file.header().unwrap();
        assert!(!format!("{file:?}").contains("very-secret"));
    }
}
