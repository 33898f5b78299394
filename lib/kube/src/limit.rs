//! A limit of requests on our side, so that a program gone wrong does not drown the API server.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use tower::{Layer, Service};

/// Requests per second and how many may be sent at once after a quiet time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// On average, more than 0.
    pub per_second: f64,
    /// At once, at least 1.
    pub burst: u32,
}

impl Default for Rate {
    /// 20 and 30: `--kube-api-qps` and `--kube-api-burst` of koordlet.
    fn default() -> Rate {
        Rate { per_second: 20.0, burst: 30 }
    }
}

/// Counts what may be sent. A request that comes too early is told how long to wait; those who wait go in the order in
/// which they came.
#[derive(Debug, Clone, PartialEq)]
pub struct Bucket {
    rate: Rate,
    /// Below zero when requests wait.
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// A full bucket. A rate that is not above 0 counts as one request in a thousand seconds.
    pub fn new(rate: Rate, now: Instant) -> Bucket {
        let per_second = if rate.per_second > 0.0 { rate.per_second } else { 0.001 };
        let rate = Rate { per_second, burst: rate.burst.max(1) };
        Bucket { rate, tokens: rate.burst.into(), filled: now }
    }

    /// Takes one request out, and says how long it must wait.
    pub fn reserve(&mut self, now: Instant) -> Duration {
        self.fill(now);
        self.tokens -= 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.tokens / self.rate.per_second).unwrap_or(Duration::MAX)
    }

    /// Takes one request out if it need not wait.
    pub fn take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let enough = self.tokens >= 1.0;
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }

    /// Gives back a request that was taken out and never sent.
    pub fn give_back(&mut self) {
        self.tokens = (self.tokens + 1.0).min(self.rate.burst.into());
    }

    fn fill(&mut self, now: Instant) {
        // A clock that went back gives nothing and takes nothing.
        let passed = now.saturating_duration_since(self.filled);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.rate.per_second).min(self.rate.burst.into());
        self.filled = self.filled.max(now);
    }
}

/// Lets requests of all clones through at one rate.
#[derive(Debug, Clone)]
pub struct LimitLayer {
    bucket: Arc<Mutex<Bucket>>,
}

impl LimitLayer {
    /// A layer with a full bucket.
    pub fn new(rate: Rate) -> LimitLayer {
        LimitLayer { bucket: Arc::new(Mutex::new(Bucket::new(rate, Instant::now()))) }
    }
}

impl<S> Layer<S> for LimitLayer {
    type Service = Limit<S>;

    fn layer(&self, inner: S) -> Limit<S> {
        Limit { inner, bucket: Arc::clone(&self.bucket) }
    }
}

/// The service of [`LimitLayer`].
#[derive(Debug, Clone)]
pub struct Limit<S> {
    inner: S,
    bucket: Arc<Mutex<Bucket>>,
}

/// A place in the queue. Whoever leaves the queue gives the place to those behind.
struct Place {
    bucket: Arc<Mutex<Bucket>>,
    used: bool,
}

impl Place {
    /// The request goes out.
    fn take(mut self) {
        self.used = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.used {
            self.bucket.lock().unwrap_or_else(PoisonError::into_inner).give_back();
        }
    }
}

impl<S, Request> Service<Request> for Limit<S>
where
    S: Service<Request> + Clone + Send + 'static,
    S::Future: Send,
    Request: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let wait = self.bucket.lock().unwrap_or_else(PoisonError::into_inner).reserve(Instant::now());
        let ready = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, ready);
        let place = Place { bucket: Arc::clone(&self.bucket), used: false };
        Box::pin(async move {
            if !wait.is_zero() {
                tracing::trace!(wait_ms = wait.as_millis(), "request waits for its turn");
                tokio::time::sleep(wait).await;
            }
            place.take();
            inner.call(request).await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;
    use tower::ServiceExt as _;

    use super::*;

    fn bucket(per_second: f64, burst: u32) -> (Bucket, Instant) {
        let now = Instant::now();
        (Bucket::new(Rate { per_second, burst }, now), now)
    }

    #[test]
    fn a_burst_passes_and_the_rest_queues() {
        let (mut bucket, now) = bucket(20.0, 3);
        let waits: Vec<_> = (0..5).map(|_| bucket.reserve(now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 50, 100]);
        // 100 ms later two tokens have come, which those two use.
        assert_eq!(bucket.reserve(now + Duration::from_millis(100)).as_millis(), 50);
    }

    #[test]
    fn a_quiet_hour_gives_one_burst_and_no_more() {
        let (mut bucket, now) = bucket(20.0, 2);
        let later = now + Duration::from_secs(3600);
        let waits: Vec<_> = (0..3).map(|_| bucket.reserve(later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 50]);
        assert_eq!(bucket.reserve(now).as_millis(), 100, "an earlier time adds nothing");
    }

    #[test]
    fn taking_never_queues() {
        let (mut bucket, now) = bucket(1.0, 2);
        let taken: Vec<_> = (0..4).map(|_| bucket.take(now)).collect();
        assert_eq!(taken, [true, true, false, false]);
        assert!(!bucket.take(now + Duration::from_millis(999)));
        assert!(bucket.take(now + Duration::from_secs(1)));
    }

    #[test]
    fn rates_that_make_no_sense_still_let_the_first_request_through() {
        for (per_second, burst) in [(0.0, 0), (-1.0, 1), (f64::NAN, 1)] {
            let (mut bucket, now) = bucket(per_second, burst);
            assert_eq!(bucket.reserve(now), Duration::ZERO);
            assert!(bucket.reserve(now) >= Duration::from_secs(900));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_their_turn() {
        let layer = LimitLayer::new(Rate { per_second: 10.0, burst: 2 });
        let service =
            layer.layer(tower::service_fn(|n: u32| async move { Ok::<_, Infallible>((n, Instant::now())) }));
        let start = Instant::now();
        let calls = (0..5).map(|n| service.clone().oneshot(n));
        let ends: Vec<_> = futures_util::future::try_join_all(calls).await.unwrap();
        let milliseconds: Vec<_> = ends.iter().map(|(_, at)| (*at - start).as_millis()).collect();
        assert_eq!(milliseconds, [0, 0, 100, 200, 300]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_the_queue_gives_the_place_back() {
        let layer = LimitLayer::new(Rate { per_second: 1.0, burst: 1 });
        let service = layer.layer(tower::service_fn(|(): ()| async { Ok::<_, Infallible>(Instant::now()) }));
        let start = Instant::now();
        service.clone().oneshot(()).await.unwrap();
        let left = tokio::time::timeout(Duration::from_millis(1), service.clone().oneshot(())).await;
        assert!(left.is_err());
        let end = service.clone().oneshot(()).await.unwrap();
        assert_eq!((end - start).as_secs(), 1);
    }

    proptest! {
        #[test]
        fn no_window_holds_more_than_the_burst_and_the_rate(
            steps in proptest::collection::vec(0u64..400, 1..80),
            per_second in 1u32..50,
            burst in 1u32..20,
        ) {
            let (mut bucket, start) = bucket(per_second.into(), burst);
            let mut now = start;
            let mut sent: Vec<Duration> = Vec::new();
            for step in steps {
                now += Duration::from_millis(step);
                sent.push(now + bucket.reserve(now) - start);
            }
            for (first, from) in sent.iter().enumerate() {
                for (last, to) in sent.iter().enumerate().skip(first) {
                    let allowed = f64::from(burst) + (*to - *from).as_secs_f64() * f64::from(per_second);
                    prop_assert!(((last - first + 1) as f64) <= allowed + 1e-3);
                }
            }
        }
    }
}
