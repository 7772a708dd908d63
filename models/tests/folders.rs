//! Model folders: what is written is read back, and a bad file is refused with its name.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::{embedded, tiny, trained_adapter};
use cosplay_models::{Adapter, Model, NamedTensor, tensors_from_bytes, tensors_to_bytes};
use proptest::prelude::*;
use std::fs;

#[test]
fn a_peft_folder_is_read_back_and_written_with_the_same_bytes() {
    let model = embedded("0.1M");
    let adapter = trained_adapter(model.config(), 16, 1);
    let folder = tempfile::tempdir().unwrap();
    adapter.save(folder.path(), "cosplay-embedded-0.1M").unwrap();
    assert_eq!(Adapter::load(folder.path(), model.config()).unwrap(), adapter);
    let bytes = fs::read(folder.path().join("adapter_model.safetensors")).unwrap();
    let names: Vec<String> = tensors_from_bytes(&bytes).unwrap().into_iter().map(|t| t.name).collect();
    assert_eq!(names.len(), 28);
    assert!(names.contains(&"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight".to_owned()));
    adapter.save(folder.path(), "cosplay-embedded-0.1M").unwrap();
    assert_eq!(bytes, fs::read(folder.path().join("adapter_model.safetensors")).unwrap());
    let config: serde_json::Value = serde_json::from_slice(&fs::read(folder.path().join("adapter_config.json")).unwrap()).unwrap();
    assert_eq!(config["r"], 16);
    assert_eq!(config["lora_alpha"], 32);
    assert_eq!(config["target_modules"].as_array().unwrap().len(), 7);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");
}

#[test]
fn a_base_folder_is_read_back() {
    let model = embedded("0.3M");
    let folder = tempfile::tempdir().unwrap();
    model.save_base(folder.path()).unwrap();
    let read = Model::load_base(folder.path()).unwrap();
    assert_eq!(read.config(), model.config());
    assert_eq!(read.base_tensors(), model.base_tensors());
}

#[test]
fn half_precisions_become_single() {
    // 1.5 and -0.25 in bf16 and f16, with the header written by hand.
    for (kind, halves) in [("BF16", [0x3fc0u16, 0xbe80]), ("F16", [0x3e00, 0xb400])] {
        let header = format!(r#"{{"x":{{"dtype":"{kind}","shape":[2],"data_offsets":[0,4]}}}}"#);
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.bytes());
        bytes.extend(halves.iter().flat_map(|h| h.to_le_bytes()));
        assert_eq!(tensors_from_bytes(&bytes).unwrap()[0].data, [1.5, -0.25], "{kind}");
    }
}

/// Loads a folder after `spoil` has changed one of its files, and returns the message.
fn refusal(file: &str, spoil: impl Fn(Vec<u8>) -> Vec<u8>) -> String {
    let model = tiny();
    let folder = tempfile::tempdir().unwrap();
    trained_adapter(model.config(), 2, 1).save(folder.path(), "base").unwrap();
    let path = folder.path().join(file);
    fs::write(&path, spoil(fs::read(&path).unwrap())).unwrap();
    let message = Adapter::load(folder.path(), model.config()).unwrap_err().to_string();
    assert!(message.contains(file), "{message} names no file");
    message
}

#[test]
fn bad_adapter_files_are_refused() {
    let tensors = "adapter_model.safetensors";
    refusal(tensors, |_| Vec::new());
    refusal(tensors, |bytes| bytes[..7].to_vec());
    refusal(tensors, |bytes| bytes[..bytes.len() - 1].to_vec());
    refusal(tensors, |bytes| bytes[..bytes.len() / 2].to_vec());
    refusal(tensors, |bytes| [bytes, vec![0]].concat());
    refusal(tensors, |_| b"<html>not found</html>".to_vec());
    let message = refusal(tensors, |bytes| [&u64::MAX.to_le_bytes(), &bytes[8..]].concat());
    assert!(message.contains("claims 18446744073709551615 bytes"), "{message}");
    let message = refusal(tensors, |bytes| [bytes, vec![0; 20 << 20]].concat());
    assert!(message.contains("at most"), "{message}");
    // A tensor that claims to be enormous.
    refusal(tensors, |_| {
        let header = br#"{"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,16]}}"#;
        [&(header.len() as u64).to_le_bytes(), header.as_slice(), &[0; 16]].concat()
    });

    let config = "adapter_config.json";
    let replace = |from: &'static str, to: &'static str| {
        move |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).unwrap();
            assert!(text.contains(from), "{from} in {text}");
            text.replace(from, to).into_bytes()
        }
    };
    refusal(config, |_| b"{".to_vec());
    refusal(config, |_| vec![b' '; 2 << 20]);
    assert!(refusal(config, replace("\"LORA\"", "\"IA3\"")).contains("LORA"));
    assert!(refusal(config, replace("\"use_dora\": false", "\"use_dora\": true")).contains("use_dora"));
    refusal(config, replace("\"r\": 2", "\"r\": 18446744073709551615"));
    let model = tiny();
    let folder = tempfile::tempdir().unwrap();
    trained_adapter(model.config(), 2, 1).save(folder.path(), "base").unwrap();
    let path = folder.path().join(config);
    fs::write(&path, replace("\"r\": 2", "\"r\": 3")(fs::read(&path).unwrap())).unwrap();
    let message = Adapter::load(folder.path(), model.config()).unwrap_err().to_string();
    assert!(message.contains("lora_A.weight") && message.contains("[3, "), "{message}");
    let message = Adapter::load(&folder.path().join("nowhere"), model.config()).unwrap_err().to_string();
    assert!(message.contains("nowhere"), "{message}");
}

#[test]
fn bad_base_folders_are_refused() {
    let model = tiny();
    let folder = tempfile::tempdir().unwrap();
    model.save_base(folder.path()).unwrap();
    let path = folder.path().join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    for (from, to, expected) in [
        ("\"qwen3\"", "\"llama\"", "qwen3"),
        ("\"vocab_size\": 17", "\"vocab_size\": 99999999999", "vocab_size"),
        ("\"vocab_size\": 17", "\"vocab_size\": 18", "embed_tokens"),
        ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "layers.2"),
        ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", "layers.1"),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        fs::write(&path, text.replace(from, to)).unwrap();
        let message = Model::load_base(folder.path()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_read_but_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = tensors_from_bytes(&bytes);
    }

    #[test]
    fn any_flipped_byte_is_refused_or_read_but_never_panics(at in 0usize..400, to: u8) {
        let tensor = NamedTensor { name: "x".into(), shape: vec![2, 3], data: vec![1.0; 6] };
        let mut bytes = tensors_to_bytes(&[tensor]).unwrap();
        let at = at % bytes.len();
        bytes[at] = to;
        let _ = tensors_from_bytes(&bytes);
    }
}
