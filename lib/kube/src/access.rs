//! Reading and writing one kind of object.
//!
//! | way to write | fits |
//! |---|---|
//! | [`Access::set_status`] | one writer owns the status as a whole, and no other version of the object matters to it |
//! | [`Access::apply`], [`Access::apply_status`] | several writers, each with fields of its own (server-side apply) |
//! | [`Access::merge`] | a few keys, whoever else writes others |
//! | [`Access::modify`] | what is written depends on what is there |

use std::fmt;
use std::future::Future;
use std::time::Duration;

use http::header::{ACCEPT, HeaderValue};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::metadata::PartialObjectMeta;
use kube::core::{DynamicResourceScope, ObjectMeta, Request};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::error::{ApiError, Failure, Verb};
use crate::retry::{RetryPolicy, jitter};

/// Asks the server for the metadata of the object it has written, not for all of it.
const METADATA_ONLY: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json");

/// Objects in one answer to a list, as client-go asks for them.
const PAGE: u32 = 500;

/// Time for one try, its whole answer included.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// How a write to an object ended that may be missing.
#[derive(Debug, Clone, PartialEq)]
pub enum Written<T> {
    /// It is written; this is what the server has now.
    Done(T),
    /// There is no such object, so there was nothing to write to.
    Missing,
}

/// How [`Access::modify`] ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Modified<K> {
    /// It is written; this is what the server has now.
    Done(K),
    /// It was as wanted.
    Unchanged(K),
    /// There is no such object.
    Missing,
}

/// How [`Access::create_if_missing`] ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Created<K> {
    /// It is new.
    New(K),
    /// It was there, and is as it was.
    Existing(K),
}

/// What happens when another writer owns a field that is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// The call fails with [`Failure::Conflict`].
    Respect,
    /// The field is ours from now on.
    Take,
}

/// One kind of object in the cluster or in one namespace, with the name under which this program writes. Clones share
/// the connection. Requests that fail for a reason that can pass are sent again, see [`RetryPolicy`].
#[derive(Clone)]
pub struct Access<K: Resource> {
    api: Api<K>,
    client: Client,
    namespace: Option<String>,
    kind: K::DynamicType,
    manager: String,
    retry: RetryPolicy,
}

impl<K: Resource> fmt::Debug for Access<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Access")
            .field("url", &self.api.resource_url())
            .field("manager", &self.manager)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

impl<K: Resource> Access<K>
where
    K::DynamicType: Clone,
{
    /// Objects without namespace; of namespaced ones those of all namespaces, which can be listed and watched only.
    /// `manager` owns the fields that are written here, see "field managers" in the documentation of Kubernetes.
    pub fn all(client: &Client, kind: &K::DynamicType, manager: &str) -> Access<K> {
        Access {
            api: Api::all_with(client.clone(), kind),
            client: client.clone(),
            namespace: None,
            kind: kind.clone(),
            manager: manager.to_owned(),
            retry: RetryPolicy::default(),
        }
    }

    /// Objects of one namespace.
    pub fn namespaced(client: &Client, namespace: &str, kind: &K::DynamicType, manager: &str) -> Access<K>
    where
        K: Resource<Scope = DynamicResourceScope>,
    {
        Access {
            api: Api::namespaced_with(client.clone(), namespace, kind),
            namespace: Some(namespace.to_owned()),
            ..Access::all(client, kind, manager)
        }
    }

    /// The same with other rules for trying again.
    pub fn with_retry(self, retry: RetryPolicy) -> Access<K> {
        Access { retry, ..self }
    }

    /// The client's own type for what is not here.
    pub fn api(&self) -> &Api<K> {
        &self.api
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The kind of object.
    pub fn kind(&self) -> &K::DynamicType {
        &self.kind
    }

    /// Resource with group, namespace and name as errors show them.
    pub fn describe(&self, name: &str) -> String {
        let group = K::group(&self.kind);
        let dot = if group.is_empty() { "" } else { "." };
        let slash = self.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        format!("{}{dot}{group} {slash}{name}", K::plural(&self.kind)).trim_end().to_owned()
    }

    fn error(&self, verb: Verb, name: &str, failure: Failure) -> ApiError {
        ApiError { verb, object: self.describe(name), failure }
    }

    /// Sends a request until it succeeds, fails for good, or was tried often enough.
    async fn send<T, Fut>(&self, verb: Verb, name: &str, call: impl Fn() -> Fut) -> Result<T, ApiError>
    where
        Fut: Future<Output = Result<T, kube::Error>>,
    {
        let mut tries = 0;
        loop {
            let failure = match tokio::time::timeout(CALL_LIMIT, call()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => Failure::of(error),
                Err(_elapsed) => Failure::Timeout { limit: CALL_LIMIT },
            };
            tries += 1;
            let Some(pause) = self.retry.pause(&failure, tries, jitter()) else {
                return Err(self.error(verb, name, failure));
            };
            tracing::debug!(
                %verb, resource = %K::plural(&self.kind), name, tries, reason = failure.reason(),
                pause_ms = pause.as_millis(), "request is tried again"
            );
            tokio::time::sleep(pause).await;
        }
    }
}

/// Absence is a value.
fn unless_missing<T>(result: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.failure.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn written<T>(result: Result<T, ApiError>) -> Result<Written<T>, ApiError> {
    Ok(unless_missing(result)?.map_or(Written::Missing, Written::Done))
}

impl<K> Access<K>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
    K::DynamicType: Clone,
{
    /// The object as it is stored now; `None` if there is none.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses.
    pub async fn get(&self, name: &str) -> Result<Option<K>, ApiError> {
        unless_missing(self.send(Verb::Get, name, || self.api.get(name)).await)
    }

    /// All objects that the selection names, page by page.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses.
    pub async fn list(&self, selection: &ListParams) -> Result<Vec<K>, ApiError> {
        let mut found = Vec::new();
        let mut page = ListParams { limit: selection.limit.or(Some(PAGE)), ..selection.clone() };
        loop {
            let list = match self.send(Verb::List, "", || self.api.list(&page)).await {
                Ok(list) => list,
                // The server has forgotten the list that the pages are of; a whole one needs no memory.
                Err(error) if page.continue_token.is_some() && error.failure.is_gone() => {
                    found.clear();
                    page = ListParams { limit: None, ..selection.clone() };
                    continue;
                }
                Err(error) => return Err(error),
            };
            found.extend(list.items);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    /// Creates the object, or finds the one of its name, which stays as it is.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses the object.
    pub async fn create_if_missing(&self, object: &K) -> Result<Created<K>, ApiError>
    where
        K: Serialize,
    {
        let name = object.meta().name.clone().unwrap_or_default();
        let parameters = PostParams { field_manager: Some(self.manager.clone()), ..PostParams::default() };
        let mut tries = 0;
        loop {
            let created = self.send(Verb::Create, &name, || self.api.create(&parameters, object)).await;
            let error = match created {
                Ok(new) => return Ok(Created::New(new)),
                Err(error) if matches!(error.failure, Failure::AlreadyExists { .. }) => error,
                Err(error) => return Err(error),
            };
            if let Some(existing) = self.get(&name).await? {
                return Ok(Created::Existing(existing));
            }
            // It went between the two questions.
            tries += 1;
            match self.retry.pause_after_conflict(tries, jitter()) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(error),
            }
        }
    }

    /// Reads the object, lets `change` change it, and writes it if `change` says so. If somebody else has written
    /// meanwhile it starts over, so `change` may be called several times.
    ///
    /// # Errors
    /// The server cannot be asked or refuses, or others were faster each time.
    pub async fn modify(
        &self,
        name: &str,
        mut change: impl FnMut(&mut K) -> bool,
    ) -> Result<Modified<K>, ApiError>
    where
        K: Serialize,
    {
        let parameters = PostParams { field_manager: Some(self.manager.clone()), ..PostParams::default() };
        let mut tries = 0;
        loop {
            let Some(mut object) = self.get(name).await? else { return Ok(Modified::Missing) };
            if !change(&mut object) {
                return Ok(Modified::Unchanged(object));
            }
            let result = self.send(Verb::Update, name, || self.api.replace(name, &parameters, &object)).await;
            let error = match result {
                Ok(object) => return Ok(Modified::Done(object)),
                Err(error) if error.failure.is_not_found() => return Ok(Modified::Missing),
                Err(error) if error.failure.is_conflict() => error,
                Err(error) => return Err(error),
            };
            tries += 1;
            match self.retry.pause_after_conflict(tries, jitter()) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(error),
            }
        }
    }

    /// Puts `status` in the place of the whole status, whatever was there, without looking at the object's version: a
    /// JSON patch that adds `/status` to the subresource. Nothing of an older status stays, and no other writer makes
    /// it fail. The answer is metadata only, since the status is known here.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses the status.
    pub async fn set_status(
        &self,
        name: &str,
        status: &impl Serialize,
    ) -> Result<Written<ObjectMeta>, ApiError> {
        let operations = json!([{"op": "add", "path": "/status", "value": self.value(name, status)?}]);
        let unwritable = |source| self.error(Verb::Patch, name, Failure::Unwritable(source));
        let patch = Patch::<()>::Json(serde_json::from_value(operations).map_err(unwritable)?);
        let parameters = PatchParams { field_manager: Some(self.manager.clone()), ..PatchParams::default() };
        let send = || async {
            let mut request = Request::new(self.api.resource_url())
                .patch_subresource("status", name, &parameters, &patch)
                .map_err(kube::Error::BuildRequest)?;
            request.headers_mut().insert(ACCEPT, METADATA_ONLY);
            self.client.request::<PartialObjectMeta<K>>(request).await
        };
        let result = self.send(Verb::Patch, name, send).await;
        written(result.map(|answer| answer.metadata))
    }

    /// Makes the fields of `body` ours and sets them; fields that were ours and are not in `body` go. An object that
    /// is missing is created. `body` carries `apiVersion` and `kind`.
    ///
    /// # Errors
    /// The server cannot be asked or refuses, or with [`Ownership::Respect`] another writer owns a field that differs.
    pub async fn apply(
        &self,
        name: &str,
        body: &impl Serialize,
        ownership: Ownership,
    ) -> Result<K, ApiError> {
        let parameters = self.apply_parameters(ownership);
        let patch = Patch::Apply(self.value(name, body)?);
        self.send(Verb::Patch, name, || self.api.patch(name, &parameters, &patch)).await
    }

    /// The same for the status of an object that is there.
    ///
    /// # Errors
    /// As for [`Access::apply`].
    pub async fn apply_status(
        &self,
        name: &str,
        body: &impl Serialize,
        ownership: Ownership,
    ) -> Result<Written<K>, ApiError> {
        let parameters = self.apply_parameters(ownership);
        let patch = Patch::Apply(self.value(name, body)?);
        written(self.send(Verb::Patch, name, || self.api.patch_status(name, &parameters, &patch)).await)
    }

    fn value(&self, name: &str, body: &impl Serialize) -> Result<serde_json::Value, ApiError> {
        let unwritable = |source| self.error(Verb::Patch, name, Failure::Unwritable(source));
        serde_json::to_value(body).map_err(unwritable)
    }

    fn apply_parameters(&self, ownership: Ownership) -> PatchParams {
        let parameters = PatchParams::apply(&self.manager);
        match ownership {
            Ownership::Respect => parameters,
            Ownership::Take => parameters.force(),
        }
    }

    /// Sets the keys of `body`, removes those that are `null` there, and leaves the others (JSON merge patch).
    ///
    /// # Errors
    /// The server cannot be asked, or refuses.
    pub async fn merge(&self, name: &str, body: &impl Serialize) -> Result<Written<K>, ApiError> {
        let parameters = PatchParams { field_manager: Some(self.manager.clone()), ..PatchParams::default() };
        let patch = Patch::Merge(self.value(name, body)?);
        written(self.send(Verb::Patch, name, || self.api.patch(name, &parameters, &patch)).await)
    }

    /// Deletes the object; false if there was none.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses.
    pub async fn delete(&self, name: &str) -> Result<bool, ApiError> {
        let parameters = DeleteParams::default();
        let result = self.send(Verb::Delete, name, || self.api.delete(name, &parameters)).await;
        Ok(unless_missing(result)?.is_some())
    }

    /// The same objects with their metadata only.
    pub(crate) fn metadata(&self) -> Api<PartialObjectMeta<K>> {
        Api::all_with(self.client.clone(), &self.kind)
    }

    /// Selects one object by its name.
    pub(crate) fn selector(&self, name: &str) -> String {
        match &self.namespace {
            Some(namespace) => format!("metadata.name={name},metadata.namespace={namespace}"),
            None => format!("metadata.name={name}"),
        }
    }
}

#[cfg(test)]
mod tests;
