//! Construction of models: parameters, their initial values, their device and type.

pub(crate) mod tally;

use crate::ModelError;
use crate::config::{LoraConfig, ModelConfig};
use crate::cost::{Cost, LayerCost, PartCost};
use crate::layers::weight::Weight;
use candle_core::{DType, Device, Result, Tensor};
use std::collections::HashMap;
use std::sync::Arc;
use tally::{Stream, Tally};
use taper_ops::rng::{Counter, mix, name_key};
use taper_ops::{MappedValues, PackedWeights, Parameter, ParameterStore, Products};

/// Builder of a model's parameters. Each parameter is added under its full name.
///
/// A random value is a function of the seed, the name of the parameter and the index of the value.
/// So a seed gives the same model on any device, on any number of threads, and for any order in
/// which layers are made.
///
/// The argument `compute` of the constructors is the type of activations. On the CPU it is only the
/// type of the operands of matrix products, and everything else is f32. Trained parameters are
/// always f32.
#[derive(Debug)]
pub struct Builder {
    pub(crate) store: ParameterStore,
    /// Seed of random values; `None` if all values are zero.
    seed: Option<u64>,
    pub(crate) biases: bool,
    pub(crate) products: Products,
    pub(crate) activations: DType,
    /// Settings of adapters for linear layers; `None` if all parameters are trained, without
    /// adapters.
    pub(crate) lora: Option<LoraConfig>,
    /// Cost of the parts made so far, not counting adapters.
    tally: Tally,
    /// True if only the cost is needed, and no parameters.
    only_counts: bool,
    /// Type in which frozen parameters are made. [`Builder::held`] changes it while its closure
    /// runs.
    base_dtype: DType,
    /// Weights of linear layers, by the names of their parameters; [`Builder::finish`] gives them
    /// to the [`ModelCore`].
    projections: HashMap<String, Tensor>,
    /// Tables of tokens, like `projections`.
    token_tables: HashMap<String, Tensor>,
}

/// Parts that all models have.
#[derive(Debug, Clone)]
pub struct ModelCore {
    pub(crate) store: ParameterStore,
    pub(crate) activations: DType,
    pub(crate) config: ModelConfig,
    pub(crate) cost: Cost,
    /// Weights of linear layers, without gradients, by the names of their parameters. Tables of
    /// embeddings, and output projections that may share such a table, are not among them.
    projections: Arc<HashMap<String, Tensor>>,
    /// Tables with one row per token, without gradients, by the names of their parameters.
    token_tables: Arc<HashMap<String, Tensor>>,
    /// Type of the operands of products with `projections`.
    products: Products,
    /// Packed weights (arranged in the order in which matrix kernels read them), which replace
    /// those of `projections` if the model only decodes.
    packs: Option<Arc<PackedWeights>>,
}

impl ModelCore {
    /// Prepares a model that is only used for decoding: from now on, [`ModelCore::finish_loading`]
    /// packs the weights of linear layers, in int8 if `is_int8` is true.
    pub(crate) fn only_decode(&mut self, is_int8: bool) {
        self.packs = Some(self.packs(is_int8));
    }

    /// Packed weights for decoding: those that the model keeps, or else a new, empty cache. The new
    /// cache packs weights in int8 if `is_int8` is true.
    pub(crate) fn packs(&self, is_int8: bool) -> Arc<PackedWeights> {
        match &self.packs {
            Some(packs) => packs.clone(),
            None if is_int8 => Arc::new(PackedWeights::int8()),
            None => Arc::default(),
        }
    }

    /// Leaves the values of a parameter in a file; see [`Model::leave_in_file`](crate::Model).
    pub(crate) fn leave_in_file(
        &self,
        parameter: &Parameter,
        values: &MappedValues,
    ) -> Result<bool> {
        let Some(packs) = &self.packs else { return Ok(false) };
        let [projection, table] =
            [&self.projections, &self.token_tables].map(|weights| weights.get(parameter.name()));
        match projection.or(table) {
            Some(weight) => packs.replace_by(weight, self.products, values),
            None => Ok(false),
        }
    }

    /// Completes the loading of a parameter; see [`Model::finish_loading`](crate::Model).
    pub(crate) fn finish_loading(&self, parameter: &Parameter) -> Result<()> {
        let Some(packs) = &self.packs else { return Ok(()) };
        if packs.is_int8() {
            parameter.round_to_int8()?;
        }
        match self.projections.get(parameter.name()) {
            Some(weight) => packs.replace(weight, self.products),
            None => Ok(()),
        }
    }
}

impl ModelCore {
    /// Makes the parts of a model whose layers are not in this crate. `store` has its parameters,
    /// which are used in f32. `streams` are the names of the streams that the model reads, which
    /// are the kinds of sequences in a batch, such as source and target. Only the parameters count
    /// in the cost of such a model.
    #[must_use]
    pub fn new(store: ParameterStore, config: &ModelConfig, streams: &[&'static str]) -> Self {
        let costs = store.parameters().iter().map(|one| PartCost::parameter(one.shape()));
        let cost = costs.fold(PartCost::default(), |sum, one| sum + one);
        let mut builder = Builder::over(store, None, DType::F32);
        builder.count(cost);
        builder.finish(config, streams)
    }
}

impl Builder {
    /// Builder of parameters that are initialised randomly from `seed`.
    #[must_use]
    pub fn seeded(seed: u64, device: &Device, compute: DType) -> Self {
        Self::over(ParameterStore::new(device), Some(seed), compute)
    }

    /// Builder of parameters that are zero until they are loaded. This is faster than drawing
    /// random values that are then replaced.
    #[must_use]
    pub fn zeroed(device: &Device, compute: DType) -> Self {
        Self::over(ParameterStore::new(device), None, compute)
    }

    /// Builder that makes only the names and shapes of parameters, without values.
    #[must_use]
    pub fn outline() -> Self {
        Self::over(ParameterStore::outline(&Device::Cpu), None, DType::F32)
    }

    /// Builder that only counts the cost of a model on `device`. It has no parameters, and makes
    /// only one of several layers with equal settings.
    pub(crate) fn counting(device: &Device) -> Self {
        Self { only_counts: true, ..Self::over(ParameterStore::outline(device), None, DType::F32) }
    }

    fn over(store: ParameterStore, seed: Option<u64>, compute: DType) -> Self {
        let products = Products::for_model(compute, store.device());
        // With bf16 products, only the operands of matrix products are rounded; everything else is
        // f32.
        let activations = if products == Products::Bf16 { DType::F32 } else { compute };
        Self {
            store,
            seed,
            biases: true,
            products,
            activations,
            lora: None,
            base_dtype: DType::F32,
            tally: Tally::new(Stream::Last),
            only_counts: false,
            projections: HashMap::new(),
            token_tables: HashMap::new(),
        }
    }

    /// Gives adapters to linear layers, if the rank of `lora` is above 0. All other parameters are
    /// then frozen: they are the [base](ParameterStore::base) of the store, and zero until they are
    /// loaded. Exceptions are the parameters that `lora` trains without adapters.
    #[must_use]
    pub fn with_adapters(mut self, lora: &LoraConfig) -> Self {
        if lora.is_on() {
            self.store.set_adapter_scale(lora.scale());
            self.lora = Some(lora.clone());
        }
        self
    }

    /// Runs `check`, which checks a configuration. A builder that only counts skips it: even an
    /// impossible model has a cost.
    pub(crate) fn check(
        &self,
        check: impl FnOnce() -> std::result::Result<(), ModelError>,
    ) -> std::result::Result<(), ModelError> {
        if self.only_counts { Ok(()) } else { check() }
    }

    /// Checks the configuration of a model that is a single stack of Transformer layers, and sets
    /// whether its linear layers have biases.
    pub(crate) fn of_transformer(
        self,
        config: &ModelConfig,
    ) -> std::result::Result<Self, ModelError> {
        self.check(|| config.validate_transformer())?;
        Ok(self.with_biases(config.biases))
    }

    /// Sets whether linear layers have biases.
    pub(crate) fn with_biases(self, biases: bool) -> Self {
        Self { biases, ..self }
    }

    /// Runs `make`. The linear layers that it makes have biases if and only if `has` is true.
    pub(crate) fn with_biases_if<T>(
        &mut self,
        has: bool,
        make: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let biases = self.biases;
        self.biases = has;
        let layer = make(self);
        self.biases = biases;
        layer
    }

    /// Runs `make`. The frozen parameters that it makes are held in the type (f32 or bf16) that the
    /// settings of the adapters name. This must be used only for matrices of linear layers and for
    /// tables of tokens, because other operations read only f32.
    pub(crate) fn held<T>(&mut self, make: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let dtype = self.lora.as_ref().map_or(DType::F32, |lora| lora.base_dtype.dtype());
        let outside = std::mem::replace(&mut self.base_dtype, dtype);
        let layer = make(self);
        self.base_dtype = outside;
        layer
    }

    /// Device of the parameters.
    pub(crate) fn device(&self) -> &Device {
        self.store.device()
    }

    /// True if parameters have no values, so that computing with them is impossible.
    pub(crate) fn is_outline(&self) -> bool {
        self.store.is_outline()
    }

    /// Adds a cost per token to the current stream. Parameters and linear layers count their own
    /// cost; all other costs are added here.
    pub(crate) fn count(&mut self, cost: PartCost) {
        self.tally.set_current(self.tally.current() + cost);
    }

    /// Cost of everything made so far, per token of each stream.
    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Runs `make`, and counts the cost of the parts that it makes in `stream`: the parts are
    /// computed for the tokens of this stream.
    pub(crate) fn in_stream<T>(&mut self, stream: Stream, make: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.tally.stream, stream);
        let layer = make(self);
        self.tally.stream = before;
        layer
    }

    /// Runs `make`. The cost of the parts that it makes is passed to `changed`, and the cost that
    /// `changed` returns is counted in the current stream instead.
    pub(crate) fn counted_as<T>(
        &mut self,
        changed: impl FnOnce(PartCost) -> PartCost,
        make: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let before = self.tally.current();
        self.tally.set_current(PartCost::default());
        let layer = make(self);
        self.tally.set_current(before + changed(self.tally.current()));
        layer
    }

    /// Makes the layers of a stack; `make` gets the index of the layer to make. `groups` has, for
    /// each group of layers with equal settings, the index of its first layer and the number of its
    /// layers. If only the cost is needed, only the first layer of a group is made, and counted for
    /// all layers of the group.
    pub(crate) fn layers<T>(
        &mut self,
        groups: &[(usize, usize)],
        mut make: impl FnMut(&mut Self, usize) -> Result<T>,
    ) -> Result<Vec<T>> {
        if !self.only_counts {
            let layers = groups.iter().map(|(_, count)| count).sum();
            return (0..layers).map(|layer| make(self, layer)).collect();
        }
        let mut stack = Vec::with_capacity(groups.len());
        for &(layer, count) in groups {
            let nothing = Tally::new(self.tally.stream);
            let before = std::mem::replace(&mut self.tally, nothing);
            stack.push(make(self, layer)?);
            let of_one = std::mem::replace(&mut self.tally, before);
            self.tally.add(&of_one, count);
        }
        Ok(stack)
    }

    /// Returns the cost of the part of a model that `make` makes. The linear layers in the part
    /// have biases if `biases` is true. If the part cannot be made, the cost is zero.
    pub(crate) fn part_cost<T>(
        biases: bool,
        make: impl FnOnce(&mut Self) -> Result<T>,
    ) -> LayerCost {
        let mut build = Self::counting(&Device::Cpu).with_biases(biases);
        let layer = make(&mut build);
        LayerCost::from_part(layer.map_or_else(|_| PartCost::default(), |_| build.tally.current()))
    }

    /// Finishes a model of `config` after all its layers are made; `streams` are the names of the
    /// streams that the model reads.
    pub(crate) fn finish(self, config: &ModelConfig, streams: &[&'static str]) -> ModelCore {
        let Tally { first, last, .. } = self.tally;
        let costs = if streams.len() == 2 { &[first, last][..] } else { &[last] };
        let cost = Cost::from_streams(streams.iter().copied().zip(costs.iter().copied()));
        let config = config.clone();
        ModelCore {
            store: self.store,
            activations: self.activations,
            config,
            cost,
            projections: Arc::new(self.projections),
            token_tables: Arc::new(self.token_tables),
            products: self.products,
            packs: None,
        }
    }

    /// Adds a parameter. `value` computes each value of the parameter. It gets a source of random
    /// numbers, which depends on the seed and on the parameter's name, and the index of the value.
    pub(crate) fn add(
        &mut self,
        name: &str,
        shape: &[usize],
        value: impl Fn(&Counter, u64) -> f32,
    ) -> Result<Weight> {
        self.count(PartCost::parameter(shape));
        if self.only_counts {
            return Ok(Weight::new(Tensor::zeros(0, DType::F32, &Device::Cpu)?));
        }
        if self.lora.as_ref().is_some_and(|lora| !lora.trains(name)) {
            return Ok(Weight::new(self.store.add_to_base(name, shape, self.base_dtype)?));
        }
        self.trained(name, shape, value)
    }

    /// Adds a parameter that is always trained, with values as in [`add`](Self::add). Does not
    /// count its cost.
    pub(crate) fn trained(
        &mut self,
        name: &str,
        shape: &[usize],
        value: impl Fn(&Counter, u64) -> f32,
    ) -> Result<Weight> {
        let count = taper_ops::scalars(shape);
        let values = match self
            .seed
            .filter(|_| !self.store.is_outline())
            .map(|seed| Counter::new(mix(seed, &[name_key(name)])))
        {
            Some(counter) => (0..count as u64).map(|i| value(&counter, i)).collect(),
            None if self.store.is_outline() => Vec::new(),
            None => vec![0.0; count],
        };
        Ok(Weight::new(self.store.add(name, shape, values)?))
    }

    /// Declares that `weight`, the parameter `name`, consists of several matrices by which a linear
    /// layer multiplies its input. `outputs` has the number of outputs of each matrix.
    pub(crate) fn project(&mut self, name: &str, weight: &Weight, outputs: &[usize]) {
        self.store.set_projections(name, outputs);
        self.projections.insert(name.to_owned(), weight.value().clone());
    }

    /// Adds a matrix with Xavier uniform initial values (Glorot and Bengio 2010), which are between
    /// `±√(6 / (fan_in + fan_out))`.
    ///
    /// If the matrix is a fused projection (`parts` matrices of equal size, stored as one), each of
    /// these matrices is initialised with its own fan-out.
    pub(crate) fn matrix(
        &mut self,
        name: &str,
        outputs: usize,
        inputs: usize,
        parts: usize,
    ) -> Result<Weight> {
        let bound = (6.0 / inputs.saturating_add(outputs / parts) as f32).sqrt();
        self.add(name, &[outputs, inputs], |counter, i| (2.0 * counter.f32_at(i) - 1.0) * bound)
    }

    /// Adds a fused projection (several matrices that are stored as one). The matrices can differ
    /// in their numbers of `outputs`; each is initialised as in [`matrix`](Self::matrix).
    pub(crate) fn matrices(
        &mut self,
        name: &str,
        inputs: usize,
        outputs: &[usize],
    ) -> Result<Weight> {
        let bound = |outputs: usize| (6.0 / inputs.saturating_add(outputs) as f32).sqrt();
        let ends = outputs.iter().scan(0, |end, &count| {
            *end = count.saturating_add(*end);
            Some(*end)
        });
        let parts: Vec<(usize, f32)> =
            ends.zip(outputs.iter().map(|&count| bound(count))).collect();
        let rows = outputs.iter().copied().fold(0, usize::saturating_add);
        self.add(name, &[rows, inputs], |counter, i| {
            let row = i as usize / inputs;
            let bound = parts.iter().find(|(end, _)| row < *end).map_or(0.0, |(_, bound)| *bound);
            (2.0 * counter.f32_at(i) - 1.0) * bound
        })
    }

    /// Adds a table with normal initial values of standard deviation `1/√width`, so that embeddings
    /// multiplied by `√width` have unit variance.
    pub(crate) fn embedding(&mut self, name: &str, rows: usize, width: usize) -> Result<Weight> {
        let deviation = (width as f64).powf(-0.5);
        self.add(name, &[rows, width], |counter, i| (counter.normal_at(i) * deviation) as f32)
    }

    /// Adds a table with one row per token, for [`TokenEmbedding`](crate::layers::embedding) and
    /// for heads. It is initialised as in [`embedding`](Self::embedding).
    pub(crate) fn token_table(&mut self, name: &str, rows: usize, width: usize) -> Result<Weight> {
        let table = self.held(|build| build.embedding(name, rows, width))?;
        self.token_tables.insert(name.to_owned(), table.value().clone());
        Ok(table)
    }

    /// Adds a vector that is initialised like a [`matrix`](Self::matrix) with one output.
    pub(crate) fn vector(&mut self, name: &str, width: usize) -> Result<Weight> {
        let bound = (6.0 / (width + 1) as f32).sqrt();
        self.add(name, &[width], |counter, i| (2.0 * counter.f32_at(i) - 1.0) * bound)
    }

    pub(crate) fn constant(&mut self, name: &str, shape: &[usize], value: f32) -> Result<Weight> {
        self.add(name, shape, |_, _| value)
    }
}
