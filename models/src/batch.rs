//! Cutting work into chunks of fixed size, running them on threads, and putting results back in order.

use crate::error::{ModelError, Result};
use candle_core::Tensor;

/// Prompts of one forward pass. About a thousand tokens of a short prompt: the activations stay in the cache, and the cost of
/// candle's bookkeeping is spread over many rows.
pub(crate) const CHUNK: usize = 64;

/// A prompt to compute and the answers wanted of it, sorted and without repeats once merged.
pub(crate) struct Request<'a> {
    pub(crate) prompt: &'a [u32],
    pub(crate) answers: Vec<u32>,
}

/// One request a prompt, by length and then by tokens.
pub(crate) fn merge_requests(mut requests: Vec<Request<'_>>) -> Vec<Request<'_>> {
    requests.sort_by(|a, b| (a.prompt.len(), a.prompt).cmp(&(b.prompt.len(), b.prompt)));
    let mut merged: Vec<Request<'_>> = Vec::with_capacity(requests.len());
    for request in requests {
        match merged.last_mut() {
            Some(last) if last.prompt == request.prompt => last.answers.extend(request.answers),
            _ => merged.push(request),
        }
    }
    for request in &mut merged {
        request.answers.sort_unstable();
        request.answers.dedup();
    }
    merged
}

/// What has a length that a batch must share.
pub(crate) trait Prompted {
    /// Tokens of the prompt.
    fn length(&self) -> usize;
}

impl Prompted for Request<'_> {
    fn length(&self) -> usize {
        self.prompt.len()
    }
}

/// Cuts items that are sorted by length into chunks of one length and at most `size` items.
pub(crate) fn chunks<T: Prompted>(items: &[T], size: usize) -> Vec<&[T]> {
    items.chunk_by(|a, b| a.length() == b.length()).flat_map(|group| group.chunks(size)).collect()
}

/// Applies `work` to every item, item `i` on thread `i mod threads`, and returns the results in the order of the items. The first
/// error in that order is returned.
pub(crate) fn in_parallel<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let threads = threads.clamp(1, items.len().max(1));
    if threads == 1 {
        return items.iter().map(work).collect();
    }
    let share = |thread: usize| -> Vec<Result<R>> { items.iter().skip(thread).step_by(threads).map(&work).collect() };
    let shares: Vec<std::thread::Result<Vec<Result<R>>>> = std::thread::scope(|scope| {
        let share = &share;
        let others: Vec<_> = (1..threads).map(|thread| scope.spawn(move || share(thread))).collect();
        let first = share(0);
        std::iter::once(Ok(first)).chain(others.into_iter().map(|handle| handle.join())).collect()
    });
    let mut shares = shares
        .into_iter()
        .map(|share| share.map(Vec::into_iter).map_err(|_| ModelError::Internal("a worker thread panicked".into())))
        .collect::<Result<Vec<_>>>()?;
    let missing = || ModelError::Internal("a worker thread left work undone".into());
    (0..items.len()).map(|i| shares[i % threads].next().ok_or_else(missing)?).collect()
}

/// The rows of a two-dimensional tensor.
pub(crate) fn rows(tensor: &Tensor) -> Result<Vec<Vec<f32>>> {
    Ok(tensor.to_vec2::<f32>()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn parallel_results_keep_their_order_for_every_number_of_threads() {
        let items: Vec<usize> = (0..23).collect();
        for threads in [1, 2, 3, 40] {
            let results = in_parallel(&items, threads, |i| Ok(i * i)).unwrap();
            assert_eq!(results, items.iter().map(|i| i * i).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_panicking_thread_is_an_error() {
        let result = in_parallel(&[0, 1, 2, 3], 2, |i| if *i == 1 { panic!("broken") } else { Ok(*i) });
        assert!(matches!(result, Err(ModelError::Internal(_))));
    }
}
