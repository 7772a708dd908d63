//! `metrics`: one row a number.

crate::table! {
    /// One number about one node in one step.
    pub struct Metric in "metrics" by (node, name) {
        /// Name of the node.
        node: String,
        /// Name of the metric, for example `action.kl`.
        name: String,
        /// Value.
        value: f64,
    }
}
