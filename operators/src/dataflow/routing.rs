//! How batches reach the workers.

use crate::dataflow::batch::Batch;
use crate::operator::Routing;
use timely::communication::Push;
use timely::container::NoopBuilder;
use timely::dataflow::Stream;
use timely::dataflow::channels::Message;
use timely::dataflow::channels::pact::{DistributorPact, Pipeline};
use timely::dataflow::channels::pushers::exchange::Distributor;
use timely::dataflow::operators::Operator as _;
use timely::progress::Stamp;

/// Sends each batch to the worker that it is addressed to.
struct ToTarget;

impl Distributor<Batch> for ToTarget {
    fn partition<T: Clone, P: Push<Message<T, Batch>>>(&mut self, batch: &mut Batch, stamp: &Stamp<T>, pushers: &mut [P]) {
        let mut batch = std::mem::take(batch);
        let index = batch.target as usize % pushers.len();
        Message::push_at(&mut batch, stamp.clone(), &mut pushers[index]);
    }

    fn flush<T: Clone, P: Push<Message<T, Batch>>>(&mut self, _stamp: &Stamp<T>, _pushers: &mut [P]) {}
}

/// Routes a stream. Progress tracking counts batches where they are produced, so that a broadcast makes its copies in an operator of its
/// own, before the exchange.
///
/// [`Routing::ByEpisode`] leaves rows where they are: whatever plays or reads episodes places them by [`worker_of_episode`], and what is
/// computed from an episode stays with it.
pub fn route<'s>(stream: Stream<'s, u64, Batch>, routing: Routing, workers: usize) -> Stream<'s, u64, Batch> {
    match routing {
        Routing::ByEpisode => stream,
        _ if workers == 1 => stream,
        Routing::Broadcast => exchange(copy_to_all(stream, workers)),
        Routing::ToOne => exchange(stream),
    }
}

/// The worker that holds an episode.
pub fn worker_of_episode(index: u32, workers: usize) -> usize {
    index as usize % workers
}

fn copy_to_all<'s>(stream: Stream<'s, u64, Batch>, workers: usize) -> Stream<'s, u64, Batch> {
    stream.unary::<NoopBuilder<Batch>, _, _, _>(Pipeline, "CopyToAll", move |_, _| {
        move |input, output| {
            input.for_each(|capability, batch| {
                for worker in 0..workers {
                    output.session_with_builder(&capability).give_container(&mut batch.addressed(worker));
                }
            });
        }
    })
}

fn exchange<'s>(stream: Stream<'s, u64, Batch>) -> Stream<'s, u64, Batch> {
    stream.unary::<NoopBuilder<Batch>, _, _, _>(DistributorPact(|_| ToTarget), "Exchange", move |_, _| {
        move |input, output| {
            input.for_each(|capability, batch| {
                let mut batch = batch.addressed(0);
                output.session_with_builder(&capability).give_container(&mut batch);
            });
        }
    })
}
