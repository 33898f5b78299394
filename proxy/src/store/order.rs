//! Keeps work on one container in order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

type Queues = Arc<Mutex<HashMap<String, Arc<AsyncMutex<()>>>>>;

/// One queue per container at which somebody works or waits.
#[derive(Debug, Default)]
pub(super) struct Orders {
    queues: Queues,
}

/// A turn that was asked for.
#[derive(Debug)]
pub enum Ordered {
    /// Nobody else is at work.
    Ready(OrderGuard),
    /// Somebody is; [`Waiting::turn`] waits.
    Waiting(Waiting),
}

/// A place in the queue.
#[derive(Debug)]
pub struct Waiting {
    place: Place,
}

/// The turn; it ends when this is dropped.
#[derive(Debug)]
pub struct OrderGuard {
    // The lock is given up before the place, which then sees that nobody else holds the queue.
    _turn: OwnedMutexGuard<()>,
    _place: Place,
}

/// Removes the queue when the last one leaves it.
#[derive(Debug)]
struct Place {
    queues: Queues,
    id: String,
    queue: Option<Arc<AsyncMutex<()>>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        self.queue = None;
        // New places are made under the same lock, so a count of one is the map's own.
        if queues.get(&self.id).is_some_and(|queue| Arc::strong_count(queue) == 1) {
            queues.remove(&self.id);
        }
    }
}

impl Orders {
    pub(super) fn enter(&self, id: &str) -> Ordered {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queues.entry(id.to_owned()).or_default().clone();
        let turn = queue.clone().try_lock_owned();
        let place = Place { queues: self.queues.clone(), id: id.to_owned(), queue: Some(queue) };
        match turn {
            Ok(turn) => Ordered::Ready(OrderGuard { _turn: turn, _place: place }),
            Err(_) => Ordered::Waiting(Waiting { place }),
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Waiting {
    /// Waits for the turn, in the order of asking.
    pub async fn turn(self) -> OrderGuard {
        let queue = self.place.queue.clone().unwrap_or_default();
        OrderGuard { _turn: queue.lock_owned().await, _place: self.place }
    }
}
