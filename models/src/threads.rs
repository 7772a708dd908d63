//! Settings of the process for tensor work: candle on one thread, because parallelism belongs to the level above, and an
//! allocator that keeps what is freed.

/// Tells candle and rayon to use one thread a caller, by setting `RAYON_NUM_THREADS` and `CANDLE_NUM_THREADS` to 1 where they are
/// unset. To be called first thing in `main`; candle reads the variables once, at its first use.
///
/// The fused operations never use rayon, so this matters for [`crate::Composition::Stock`] alone, whose matrix products would
/// otherwise be split over all cores however small they are (measured: 3 to 8 times the CPU time).
///
/// It also makes glibc keep freed tensors for the next ones instead of giving their pages back to the system.
///
/// Returns whether both variables are now set. They are left alone when the process already has other threads, since
/// changing the environment under them would be undefined behaviour, and on systems where that cannot be found out.
pub fn single_threaded_math() -> bool {
    const NAMES: [&str; 2] = ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"];
    keep_freed_memory();
    let alone = std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1);
    for name in NAMES {
        if alone && std::env::var_os(name).is_none() {
            // SAFETY: this is the only thread of the process, so nobody reads the environment meanwhile.
            unsafe { std::env::set_var(name, "1") };
        }
    }
    NAMES.iter().all(|name| std::env::var_os(name).is_some())
}

/// Freeing one large block raises glibc's thresholds for mapping and trimming to its size (at most 32 MiB), so that the
/// buffers of a forward pass, freed and taken again thousands of times a second, stay in the process. Elsewhere it does
/// nothing.
fn keep_freed_memory() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(31 << 20)));
}
