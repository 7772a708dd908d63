//! Training of the whole base or of one adapter: gradients of logits and AdamW.

use crate::adapter::{self, Adapter};
use crate::batch::{self, Prompted};
use crate::error::{ModelError, Result};
use crate::gradient::Gradient;
use crate::model::{Model, Query};
use crate::qwen3::{Composition, Projection, Weights};
use crate::tensor::{NamedTensor, TrainedTensor};
use candle_core::{Device, Tensor, Var};
use std::collections::BTreeMap;

/// Running sums that chunks are added to: chunk `i` to sum `i mod LANES`, in order; the sums are then added in order. The
/// order of every addition is thereby fixed for any number of threads, without keeping a gradient a chunk in memory.
/// It also bounds the useful number of threads.
const LANES: usize = 16;

/// Settings of AdamW (Loshchilov and Hutter 2019). Decay applies to matrices, not to the weights of norms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of squared gradients.
    pub beta2: f64,
    /// Added to the root of the mean square.
    pub eps: f64,
    /// Decoupled weight decay, multiplied by the learning rate.
    pub weight_decay: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        Self { lr: 1e-3, beta1: 0.9, beta2: 0.98, eps: 1e-8, weight_decay: 0.0 }
    }
}

/// What is trained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Every tensor of the base.
    Base,
    /// The adapter of this name; the base stays frozen.
    Adapter(String),
}

/// A model of which one part can change, with the optimiser's state.
#[derive(Clone, Debug)]
pub struct Trainable {
    model: Model,
    target: Target,
    parameters: Vec<TrainedTensor>,
    composition: Composition,
}

/// A prompt and the loss's derivative with respect to some of its logits.
struct Sample<'a> {
    prompt: &'a [u32],
    d_logits: BTreeMap<u32, f64>,
}

impl Prompted for Sample<'_> {
    fn length(&self) -> usize {
        self.prompt.len()
    }
}

/// The weights of a forward pass and its variables by name: the base's own, or the merged layers of an adapter.
struct Graph {
    weights: Weights,
    variables: BTreeMap<String, Var>,
}

impl Trainable {
    /// Trains `target` of `model` from the weights it has, with a fresh optimiser.
    ///
    /// # Errors
    /// When the model has no adapter of that name.
    pub fn new(model: &Model, target: Target) -> Result<Self> {
        let tensors = match &target {
            Target::Base => model.base_tensors(),
            Target::Adapter(name) => model.adapter_tensors(name)?,
        };
        let parameters = tensors.into_iter().map(TrainedTensor::new).collect();
        Ok(Self { model: model.clone(), target, parameters, composition: Composition::Fused })
    }

    /// Continues from an [`Trainable::export`]ed state. `model` gives the part that is not trained (for an adapter: the base, and the
    /// adapter's rank and scale).
    ///
    /// # Errors
    /// When the state does not fit the model, or its tensors differ in the number of updates.
    pub fn restore(model: &Model, target: Target, mut state: Vec<TrainedTensor>) -> Result<Self> {
        state.sort_by(|a, b| a.tensor.name.cmp(&b.tensor.name));
        let fresh = Self::new(model, target)?;
        let what = "trained tensors";
        if state.len() != fresh.parameters.len() {
            return Err(ModelError::Length { what, expected: fresh.parameters.len(), found: state.len() });
        }
        let updates = state.first().map_or(0, |first| first.updates);
        for (given, expected) in state.iter().zip(&fresh.parameters) {
            if given.tensor.name != expected.tensor.name {
                return Err(ModelError::UnexpectedTensor { name: given.tensor.name.clone() });
            }
            given.tensor.expect_shape(&expected.tensor.shape)?;
            for (what, moment) in [("first moments", &given.first_moment), ("second moments", &given.second_moment)] {
                if moment.len() != given.tensor.data.len() {
                    return Err(ModelError::Length { what, expected: given.tensor.data.len(), found: moment.len() });
                }
            }
            if given.updates != updates {
                let (expected, found) = (updates as usize, given.updates as usize);
                return Err(ModelError::Length { what: "updates of a trained tensor", expected, found });
            }
        }
        Self { parameters: state, ..fresh }.refreshed()
    }

    /// Uses the given operations.
    #[must_use]
    pub fn with_composition(mut self, composition: Composition) -> Self {
        self.composition = composition;
        self
    }

    /// What is trained.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The model with the current weights.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The trained tensors with the optimiser's state, sorted by name.
    pub fn export(&self) -> Vec<TrainedTensor> {
        self.parameters.clone()
    }

    /// Updates made so far.
    pub fn updates(&self) -> u32 {
        self.parameters.first().map_or(0, |p| p.updates)
    }

    /// A gradient of zeros with this model's shapes.
    pub fn zero_gradient(&self) -> Gradient {
        Gradient::new(self.parameters.iter().map(|p| NamedTensor {
            name: p.tensor.name.clone(),
            shape: p.tensor.shape.clone(),
            data: vec![0.0; p.tensor.data.len()],
        }))
    }

    /// `Σ dL/dlogit · dlogit/dθ` over all answers of all queries; `d_logits` lies like the result of
    /// [`crate::Scorer::logits`]. Queries that share a prompt share its forward and backward pass.
    ///
    /// The bits do not depend on `threads`: unique prompts are sorted by length and tokens, cut into chunks of fixed size,
    /// and chunks are summed in a fixed order.
    ///
    /// # Errors
    /// Bad queries, as for [`crate::Scorer::logits`]; `d_logits` of another length than the answers.
    pub fn gradient(&self, queries: &[Query<'_>], d_logits: &[f32], threads: usize) -> Result<Gradient> {
        let samples = self.samples(queries, d_logits)?;
        let chunks = batch::chunks(&samples, batch::CHUNK);
        let graph = self.graph()?;
        let lanes: Vec<usize> = (0..LANES.min(chunks.len())).collect();
        let sums = batch::in_parallel(&lanes, threads, |lane| {
            let mut sum: Option<Vec<Vec<f32>>> = None;
            for chunk in chunks.iter().skip(*lane).step_by(LANES) {
                let gradients = self.chunk_gradient(&graph, chunk)?;
                match &mut sum {
                    Some(sum) => add_all(sum, &gradients),
                    None => sum = Some(gradients),
                }
            }
            Ok(sum.unwrap_or_default())
        })?;
        let mut sums = sums.into_iter();
        let Some(mut total) = sums.next() else {
            return Ok(self.zero_gradient());
        };
        for sum in sums {
            add_all(&mut total, &sum);
        }
        self.as_gradient(&graph, total)
    }

    /// One step of AdamW. A gradient of zeros still moves the weights when there are moments or decay, so a caller with nothing to
    /// learn from skips the step.
    ///
    /// # Errors
    /// A gradient of other shapes, one that is not finite (naming the tensor), or settings out of range. Nothing has changed then.
    pub fn apply(&mut self, gradient: &Gradient, settings: &AdamW) -> Result<()> {
        check_settings(settings)?;
        gradient.check_fits(self.parameters.iter().map(|p| &p.tensor))?;
        if let Some(name) = gradient.first_not_finite() {
            return Err(ModelError::NonFinite { what: format!("the gradient of {name}") });
        }
        for (parameter, gradient) in self.parameters.iter_mut().zip(gradient.tensors()) {
            update(parameter, &gradient.data, settings);
        }
        let refreshed = self.clone().refreshed()?;
        *self = refreshed;
        Ok(())
    }

    /// Puts the current parameters into the model.
    fn refreshed(mut self) -> Result<Self> {
        let tensors = self.parameters.iter().map(|p| p.tensor.clone()).collect();
        self.model = match &self.target {
            Target::Base => self.model.with_base(tensors)?,
            Target::Adapter(name) => {
                let old = self.model.adapter(name)?;
                let adapter = Adapter::new(self.model.config(), old.rank(), old.alpha(), tensors)?;
                self.model.with_adapter(name, adapter)?
            }
        };
        Ok(self)
    }

    /// Unique prompts in order, with the derivatives of queries that share one added up in the order given.
    fn samples<'a>(&self, queries: &[Query<'a>], d_logits: &[f32]) -> Result<Vec<Sample<'a>>> {
        let expected = queries.iter().map(|q| q.answers.len()).sum();
        if d_logits.len() != expected {
            return Err(ModelError::Length { what: "logit derivatives", expected, found: d_logits.len() });
        }
        let mut merged: BTreeMap<(usize, &'a [u32]), BTreeMap<u32, f64>> = BTreeMap::new();
        let mut rest = d_logits;
        for query in queries {
            self.model.check_query(query)?;
            let (own, others) = rest.split_at(query.answers.len());
            rest = others;
            let sums = merged.entry((query.prompt.len(), query.prompt)).or_default();
            for (answer, d) in query.answers.iter().zip(own) {
                *sums.entry(*answer).or_default() += f64::from(*d);
            }
        }
        Ok(merged.into_iter().map(|((_, prompt), d_logits)| Sample { prompt, d_logits }).collect())
    }

    /// Weights with variables for what is trained.
    fn graph(&self) -> Result<Graph> {
        match &self.target {
            Target::Base => self.base_graph(),
            Target::Adapter(name) => {
                let adapter = self.model.adapter(name)?;
                match self.composition {
                    Composition::Fused => self.merged_graph(adapter),
                    Composition::Stock => self.low_rank_graph(adapter),
                }
            }
        }
    }

    /// Every base tensor is a variable.
    fn base_graph(&self) -> Result<Graph> {
        let mut variables = BTreeMap::new();
        for parameter in &self.parameters {
            variables.insert(parameter.tensor.name.clone(), variable(&parameter.tensor.data, &parameter.tensor.shape)?);
        }
        self.dense_graph(variables)
    }

    /// The merged linear layers are the variables. At small widths this is cheaper than the low-rank products, and training and scoring
    /// then see the same bits; the gradients of A and B follow from the merged ones once a step.
    fn merged_graph(&self, adapter: &Adapter) -> Result<Graph> {
        let mut variables = BTreeMap::new();
        for module in adapter::modules(self.model.config()) {
            let base = self.model.base_tensor(&format!("{module}.weight"))?;
            variables.insert(base.name.clone(), variable(&adapter.merged(&module, base)?, &base.shape)?);
        }
        self.dense_graph(variables)
    }

    fn dense_graph(&self, variables: BTreeMap<String, Var>) -> Result<Graph> {
        let tensor = |name: &str| match variables.get(name) {
            Some(variable) => Ok(variable.as_tensor().clone()),
            None => self.model.constant(name),
        };
        let projection = |module: &str| Ok(Projection::Dense(tensor(&format!("{module}.weight"))?));
        let weights = self.model.assemble(self.composition, tensor, projection)?;
        Ok(Graph { weights, variables })
    }

    /// A and B themselves are the variables, beside the frozen layers: for wide models, whose full weight gradients would be too large.
    fn low_rank_graph(&self, adapter: &Adapter) -> Result<Graph> {
        let mut variables = BTreeMap::new();
        for tensor in adapter.tensors() {
            variables.insert(tensor.name.clone(), variable(&tensor.data, &tensor.shape)?);
        }
        let factor = |module: &str, letter: char| -> Result<Tensor> {
            let name = format!("{module}.lora_{letter}.weight");
            let variable = variables.get(&name).ok_or(ModelError::MissingTensor { name })?;
            Ok(variable.as_tensor().clone())
        };
        let projection = |module: &str| {
            Ok(Projection::LowRank {
                base: self.model.constant(&format!("{module}.weight"))?,
                a: factor(module, 'A')?,
                b: factor(module, 'B')?,
                scale: f64::from(adapter.scale()),
            })
        };
        let weights = self.model.assemble(self.composition, |name| self.model.constant(name), projection)?;
        Ok(Graph { weights, variables })
    }

    /// Gradient of one chunk with respect to the graph's variables, in order of their names.
    fn chunk_gradient(&self, graph: &Graph, chunk: &[Sample<'_>]) -> Result<Vec<Vec<f32>>> {
        let prompts: Vec<&[u32]> = chunk.iter().map(|s| s.prompt).collect();
        let logits = graph.weights.logits(&prompts)?;
        let vocab_size = self.model.config().vocab_size;
        let mut seeds = vec![0f32; chunk.len() * vocab_size];
        for (row, sample) in seeds.chunks_exact_mut(vocab_size).zip(chunk) {
            for (answer, d) in &sample.d_logits {
                row[*answer as usize] = *d as f32;
            }
        }
        let seeds = Tensor::from_vec(seeds, (chunk.len(), vocab_size), &Device::Cpu)?;
        let gradients = (logits * seeds)?.sum_all()?.backward()?;
        let mut all = Vec::with_capacity(graph.variables.len());
        for (name, variable) in &graph.variables {
            // candle loses a gradient in silence when an operation has no backward pass.
            let gradient = gradients.get(variable).ok_or_else(|| ModelError::Internal(format!("no gradient reached {name}")))?;
            all.push(gradient.flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(all)
    }

    /// The gradient of the trained tensors from that of the graph's variables.
    fn as_gradient(&self, graph: &Graph, total: Vec<Vec<f32>>) -> Result<Gradient> {
        let named: BTreeMap<String, Vec<f32>> = match &self.target {
            Target::Adapter(name) if self.composition == Composition::Fused => {
                let adapter = self.model.adapter(name)?;
                let mut named = BTreeMap::new();
                for (name, dw) in graph.variables.keys().zip(&total) {
                    let module = name.strip_suffix(".weight").unwrap_or(name);
                    let (da, db) = adapter.project(module, dw)?;
                    named.insert(format!("{module}.lora_A.weight"), da);
                    named.insert(format!("{module}.lora_B.weight"), db);
                }
                named
            }
            _ => graph.variables.keys().cloned().zip(total).collect(),
        };
        let mut gradient = self.zero_gradient();
        for tensor in gradient.tensors_mut() {
            let data = named.get(&tensor.name).ok_or_else(|| ModelError::MissingTensor { name: tensor.name.clone() })?;
            tensor.data.clone_from(data);
        }
        Ok(gradient)
    }
}

fn variable(data: &[f32], shape: &[usize]) -> Result<Var> {
    Ok(Var::from_slice(data, shape, &Device::Cpu)?)
}

/// Adds tensor by tensor, float by float.
fn add_all(sum: &mut [Vec<f32>], more: &[Vec<f32>]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        for (sum, more) in sum.iter_mut().zip(more) {
            *sum += more;
        }
    }
}

fn check_settings(settings: &AdamW) -> Result<()> {
    let AdamW { lr, beta1, beta2, eps, weight_decay } = *settings;
    for (name, value, fits, expected) in [
        ("lr", lr, lr.is_finite() && lr >= 0.0, "0 or more"),
        ("beta1", beta1, (0.0..1.0).contains(&beta1), "in [0, 1)"),
        ("beta2", beta2, (0.0..1.0).contains(&beta2), "in [0, 1)"),
        ("eps", eps, eps.is_finite() && eps > 0.0, "above 0"),
        ("weight_decay", weight_decay, weight_decay.is_finite() && weight_decay >= 0.0, "0 or more"),
    ] {
        if !fits {
            return Err(ModelError::Setting { name, value, expected });
        }
    }
    Ok(())
}

/// AdamW on one tensor: moments in `f32`, bias correction in `f64`.
fn update(parameter: &mut TrainedTensor, gradient: &[f32], settings: &AdamW) {
    parameter.updates += 1;
    let updates = f64::from(parameter.updates);
    let (b1, b2) = (settings.beta1 as f32, settings.beta2 as f32);
    let step = (settings.lr / (1.0 - settings.beta1.powf(updates))) as f32;
    let correction = (1.0 / (1.0 - settings.beta2.powf(updates)).sqrt()) as f32;
    let matrix = parameter.tensor.shape.len() > 1;
    let keep = if matrix { 1.0 - (settings.lr * settings.weight_decay) as f32 } else { 1.0 };
    let eps = settings.eps as f32;
    let moments = parameter.first_moment.iter_mut().zip(parameter.second_moment.iter_mut());
    for ((w, g), (m, v)) in parameter.tensor.data.iter_mut().zip(gradient).zip(moments) {
        *m = b1 * *m + (1.0 - b1) * g;
        *v = b2 * *v + (1.0 - b2) * g * g;
        *w = *w * keep - step * *m / (v.sqrt() * correction + eps);
    }
}
