//! Model folders: Hugging Face bases (`config.json`, `model.safetensors`) and PEFT adapters (`adapter_config.json`,
//! `adapter_model.safetensors`), which Python's `transformers` and `peft` read and write too.
//!
//! Files come from outside: sizes are checked before memory is taken, names and shapes against the configuration, and nothing in a
//! file is executed. Every file is written beside its place and renamed into it.

use crate::adapter::Adapter;
use crate::config::{LINEAR_MODULES, ModelConfig};
use crate::error::{ModelError, Result};
use crate::model::Model;
use crate::tensor::NamedTensor;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Longest configuration file, in bytes.
const MAX_CONFIG_LEN: u64 = 1 << 20;
/// Longest header of a tensor file, in bytes.
const MAX_HEADER_LEN: u64 = 16 << 20;
/// What PEFT puts before the base's names.
const PEFT_PREFIX: &str = "base_model.model.";

impl Model {
    /// Writes the base as a Hugging Face folder.
    ///
    /// # Errors
    /// When the folder or a file cannot be written.
    pub fn save_base(&self, folder: &Path) -> Result<()> {
        let mut config = serde_json::to_value(self.config()).map_err(|e| ModelError::file(folder, e))?;
        if let Some(config) = config.as_object_mut() {
            config.insert("architectures".into(), json!(["Qwen3ForCausalLM"]));
            config.insert("model_type".into(), json!("qwen3"));
            config.insert("hidden_act".into(), json!("silu"));
            config.insert("attention_bias".into(), json!(false));
            config.insert("torch_dtype".into(), json!("float32"));
        }
        let tensors = self.base_tensors();
        write_folder(folder, ("model.safetensors", &tensors_to_bytes(&tensors)?), ("config.json", &config))
    }

    /// Reads a base from a Hugging Face folder with one tensor file.
    ///
    /// # Errors
    /// A file that is missing, too large, cut short or not what it should be; another architecture than Qwen3.
    pub fn load_base(folder: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct Kind {
            model_type: String,
        }
        let path = folder.join("config.json");
        let kind: Kind = read_json(&path)?;
        if kind.model_type != "qwen3" {
            let kind: String = kind.model_type.chars().take(40).collect();
            return Err(ModelError::file(&path, format!("model_type is {kind:?}, must be \"qwen3\"")));
        }
        let config: ModelConfig = read_json(&path)?;
        config.validate().map_err(|e| ModelError::file(&path, e))?;
        let path = folder.join("model.safetensors");
        let tensors = read_tensors(&path, config.parameters())?;
        Self::new(config, tensors).map_err(|e| ModelError::file(&path, e))
    }
}

/// The part of PEFT's `adapter_config.json` that decides what an adapter computes.
#[derive(Deserialize)]
struct PeftConfig {
    peft_type: String,
    r: usize,
    lora_alpha: f64,
    #[serde(default)]
    use_rslora: bool,
    #[serde(default)]
    use_dora: bool,
    #[serde(default)]
    fan_in_fan_out: bool,
    #[serde(default)]
    bias: Option<String>,
    #[serde(default)]
    rank_pattern: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    alpha_pattern: serde_json::Map<String, serde_json::Value>,
}

impl PeftConfig {
    /// Refuses variants that would be computed wrongly.
    fn check(&self, path: &Path) -> Result<()> {
        let refuse = |reason: &str| Err(ModelError::file(path, reason));
        if self.peft_type != "LORA" {
            return refuse("peft_type must be \"LORA\"");
        }
        if self.use_rslora || self.use_dora || self.fan_in_fan_out {
            return refuse("use_rslora, use_dora and fan_in_fan_out are not supported");
        }
        if self.bias.as_deref().is_some_and(|bias| bias != "none") {
            return refuse("bias must be \"none\"");
        }
        if !self.rank_pattern.is_empty() || !self.alpha_pattern.is_empty() {
            return refuse("rank_pattern and alpha_pattern are not supported");
        }
        Ok(())
    }
}

impl Adapter {
    /// Writes the adapter as a PEFT folder. `base_name` is what the configuration names as the base model.
    ///
    /// # Errors
    /// When the folder or a file cannot be written.
    pub fn save(&self, folder: &Path, base_name: &str) -> Result<()> {
        let modules: BTreeSet<&str> = LINEAR_MODULES.iter().filter_map(|m| m.rsplit('.').next()).collect();
        // A whole number is written as one, as PEFT does.
        let alpha = if self.alpha().fract() == 0.0 && self.alpha() < 1e9 { json!(self.alpha() as u64) } else { json!(self.alpha()) };
        let config = json!({
            "base_model_name_or_path": base_name,
            "bias": "none",
            "fan_in_fan_out": false,
            "inference_mode": true,
            "init_lora_weights": true,
            "lora_alpha": alpha,
            "lora_dropout": 0.0,
            "modules_to_save": null,
            "peft_type": "LORA",
            "r": self.rank(),
            "target_modules": modules,
            "task_type": "CAUSAL_LM",
            "use_dora": false,
            "use_rslora": false,
        });
        let prefixed = |t: &NamedTensor| NamedTensor { name: format!("{PEFT_PREFIX}{}", t.name), ..t.clone() };
        let tensors: Vec<NamedTensor> = self.tensors().map(prefixed).collect();
        write_folder(folder, ("adapter_model.safetensors", &tensors_to_bytes(&tensors)?), ("adapter_config.json", &config))
    }

    /// Reads an adapter for a model of `config` from a PEFT folder.
    ///
    /// # Errors
    /// A file that is missing, too large, cut short or not what it should be; a variant of LoRA that is computed in another way.
    pub fn load(folder: &Path, config: &ModelConfig) -> Result<Self> {
        let path = folder.join("adapter_config.json");
        let peft: PeftConfig = read_json(&path)?;
        peft.check(&path)?;
        if peft.r > crate::adapter::MAX_RANK {
            return Err(ModelError::file(&path, format!("r is {}", peft.r)));
        }
        let shapes = crate::adapter::shapes(config, peft.r);
        let floats = shapes.values().map(|s| s.iter().map(|n| *n as u64).product::<u64>()).sum();
        let path = folder.join("adapter_model.safetensors");
        let mut tensors = read_tensors(&path, floats)?;
        for tensor in &mut tensors {
            match tensor.name.strip_prefix(PEFT_PREFIX) {
                Some(name) => tensor.name = name.to_owned(),
                None => {
                    return Err(ModelError::file(&path, format!("tensor {:?} has no PEFT name", shown(&tensor.name))));
                }
            }
        }
        Self::new(config, peft.r, peft.lora_alpha, tensors).map_err(|e| ModelError::file(&path, e))
    }
}

/// Tensors as the bytes of a safetensors file; the same bytes for the same tensors in any order.
///
/// # Errors
/// A tensor whose floats do not fill its shape.
pub fn tensors_to_bytes(tensors: &[NamedTensor]) -> Result<Vec<u8>> {
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|t| t.data.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
    let mut views = Vec::with_capacity(tensors.len());
    for (tensor, bytes) in tensors.iter().zip(&bytes) {
        let view = TensorView::new(Dtype::F32, tensor.shape.clone(), bytes);
        views.push((tensor.name.as_str(), view.map_err(|e| ModelError::Safetensors(e.to_string()))?));
    }
    // One entry only: the order of a map with several would reach the bytes.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize(views, Some(metadata)).map_err(|e| ModelError::Safetensors(e.to_string()))
}

/// Tensors from the bytes of a safetensors file, sorted by name; half precisions become `f32`.
///
/// # Errors
/// Bytes that are no safetensors file, are cut short or hold something after their tensors; other types than floats.
pub fn tensors_from_bytes(bytes: &[u8]) -> Result<Vec<NamedTensor>> {
    let file = SafeTensors::deserialize(bytes).map_err(|e| ModelError::Safetensors(e.to_string()))?;
    let mut tensors = Vec::new();
    for (name, view) in file.tensors() {
        let bytes = view.data();
        let data: Vec<f32> = match view.dtype() {
            Dtype::F32 => bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
            Dtype::BF16 => bytes.as_chunks().0.iter().map(|b| f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16)).collect(),
            Dtype::F16 => bytes.as_chunks().0.iter().map(|b| half_to_single(u16::from_le_bytes(*b))).collect(),
            other => {
                let name = shown(&name);
                return Err(ModelError::Safetensors(format!("tensor {name:?} is of type {other:?}, must be F32, F16 or BF16")));
            }
        };
        tensors.push(NamedTensor { name, shape: view.shape().to_vec(), data });
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}

/// IEEE half precision to single precision, exactly.
fn half_to_single(bits: u16) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// A name from a file, cut for a message.
fn shown(name: &str) -> String {
    name.chars().take(120).collect()
}

/// Reads a tensor file that may hold `floats` numbers, and refuses a larger one before reading it.
fn read_tensors(path: &Path, floats: u64) -> Result<Vec<NamedTensor>> {
    let mut file = File::open(path).map_err(|e| ModelError::file(path, e))?;
    let len = regular_len(path, &file)?;
    let most = floats * 4 + MAX_HEADER_LEN + 8;
    if len > most {
        return Err(ModelError::file(path, format!("the file has {len} bytes, a model of this size at most {most}")));
    }
    let mut prefix = [0u8; 8];
    file.read_exact(&mut prefix).map_err(|_| ModelError::file(path, "the file is cut short"))?;
    let header = u64::from_le_bytes(prefix);
    if header > MAX_HEADER_LEN || header > len - 8 {
        return Err(ModelError::file(path, format!("the header claims {header} bytes, the file has {len}")));
    }
    let mut bytes = prefix.to_vec();
    file.take(len - 8).read_to_end(&mut bytes).map_err(|e| ModelError::file(path, e))?;
    tensors_from_bytes(&bytes).map_err(|e| ModelError::file(path, e))
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let file = File::open(path).map_err(|e| ModelError::file(path, e))?;
    let len = regular_len(path, &file)?;
    if len > MAX_CONFIG_LEN {
        return Err(ModelError::file(path, format!("the file has {len} bytes, at most {MAX_CONFIG_LEN} are read")));
    }
    let mut text = String::new();
    file.take(MAX_CONFIG_LEN).read_to_string(&mut text).map_err(|e| ModelError::file(path, e))?;
    serde_json::from_str(&text).map_err(|e| ModelError::file(path, e))
}

/// Length of a regular file; a pipe or device has none and would block or never end.
fn regular_len(path: &Path, file: &File) -> Result<u64> {
    let metadata = file.metadata().map_err(|e| ModelError::file(path, e))?;
    if !metadata.is_file() {
        return Err(ModelError::file(path, "not a regular file"));
    }
    Ok(metadata.len())
}

/// Writes a tensor file and then the configuration that makes the folder a model.
fn write_folder(folder: &Path, tensors: (&str, &[u8]), config: (&str, &impl Serialize)) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| ModelError::file(folder, e))?;
    let mut text = serde_json::to_vec_pretty(config.1).map_err(|e| ModelError::file(folder, e))?;
    text.push(b'\n');
    write_atomically(&folder.join(tensors.0), tensors.1)?;
    write_atomically(&folder.join(config.0), &text)
}

/// Writes beside the place, flushes to disk, and renames: a reader sees the old file or the new one, never a part.
fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&temporary);
        ModelError::file(path, error)
    })
}
