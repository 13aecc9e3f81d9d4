//! A thread that does one thing after the other, and each only when it is told: threads that take turns.

use std::{
    sync::mpsc::{Sender, channel},
    thread::{self, JoinHandle},
};

type Order = Box<dyn FnOnce() + Send>;

/// Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    /// `None` once it has been told to end.
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn new() -> Self {
        let (orders, receive) = channel::<Order>();
        let thread = thread::spawn(move || receive.into_iter().for_each(|order| order()));
        Self {
            orders: Some(orders),
            thread: Some(thread),
        }
    }

    /// Has the thread do this, and waits for what it comes to.
    pub(crate) fn run<R: Send + 'static>(&self, order: impl FnOnce() -> R + Send + 'static) -> R {
        let (tell, told) = channel();
        let order = Box::new(move || tell.send(order()).unwrap());
        self.orders.as_ref().unwrap().send(order).unwrap();
        told.recv().unwrap()
    }

    /// Waits until the thread is gone, and all that was its own.
    pub(crate) fn end(self) {
        drop(self);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.orders = None;
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}
