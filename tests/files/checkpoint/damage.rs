use super::*;

fn whole() -> (Vec<u8>, Model) {
    let optimizer = optimizer();
    let (params, state) = trained(&optimizer, 2);
    (bytes(&Save::new(&optimizer, &state).params(&params).note("note", "of mine")), params)
}

/// Asserts that a load fails and changes nothing.
fn refused(bytes: Vec<u8>, what: &str) {
    let mut params = model();
    let done = Checkpoint::from_bytes(bytes).and_then(|file| file.load(&optimizer(), &mut params).map(|_| ()));
    let error = done.expect_err(what);
    assert!(error.is_file() || error.is_mismatch(), "{what}: {error}");
    assert_eq!(params, model(), "{what}: nothing is changed");
}

#[test]
fn every_bit_counts() {
    let (whole, _) = whole();
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        refused(flipped, &format!("bit {bit} of {}", whole.len() * 8));
    }
}

#[test]
fn every_length_but_the_right_one_is_refused() {
    let (whole, _) = whole();
    for len in 0..whole.len() {
        refused(whole[..len].to_vec(), &format!("{len} bytes of {}", whole.len()));
    }
    let mut longer = whole;
    longer.push(0);
    refused(longer, "one byte more");
}

fn with_header(change: impl Fn(String) -> String) -> Vec<u8> {
    with_header_of(whole().0, change)
}

/// Returns the file with another header and a valid check sum.
pub(crate) fn with_header_of(whole: Vec<u8>, change: impl Fn(String) -> String) -> Vec<u8> {
    let length = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let header = change(String::from_utf8(whole[8..8 + length].to_vec()).unwrap());
    let at = header.find(r#"\"check\":\""#).unwrap() + 12;
    let zeros = format!("{}00000000{}", &header[..at], &header[at + 8..]);
    let header = format!("{}{:08x}{}", &header[..at], crc32fast::hash(zeros.as_bytes()), &header[at + 8..]);
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(&whole[8 + length..]);
    bytes
}

#[test]
fn lies_with_a_right_check_sum_are_found() {
    let said = |bytes: Vec<u8>| {
        let mut params = model();
        let done = Checkpoint::from_bytes(bytes).and_then(|file| file.load(&optimizer(), &mut params).map(|_| ()));
        assert_eq!(params, model(), "nothing is changed");
        done.unwrap_err().to_string()
    };
    Checkpoint::from_bytes(with_header(|header| header)).unwrap().load(&optimizer(), &mut model()).unwrap();

    let later = said(with_header(|header| header.replace(r#"\"format\":1"#, r#"\"format\":2"#)));
    assert!(later.contains("format 2") && later.contains("reads 1"), "{later}");
    // Larger than any memory, in the structure and in a tensor.
    let huge = r#"\"shape\":[4611686018427387904,4611686018427387904]"#;
    let vast = said(with_header(|header| header.replacen(r#"\"shape\":[2,3]"#, huge, 1)));
    assert!(vast.contains("damaged"), "{vast}");
    let vast = said(with_header(|header| header.replacen(r#""shape":[2,3]"#, r#""shape":[4294967296,4294967296]"#, 1)));
    assert!(vast.contains("damaged"), "{vast}");
    // A tensor of another dtype with as many bytes.
    let other = said(with_header(|header| {
        header.replacen(r#""dtype":"F32","shape":[2,3]"#, r#""dtype":"I32","shape":[2,3]"#, 1)
    }));
    assert!(other.contains("damaged"), "{other}");
    // An undescribed tensor, and a missing one.
    let gone = said(with_header(|header| header.replacen(r#""params/bias""#, r#""params/b1as""#, 1)));
    assert!(gone.contains("damaged"), "{gone}");
    let fraction = said(with_header(|header| header.replacen(r#"{\"count\":2}"#, r#"{\"count\":2.5}"#, 1)));
    assert!(fraction.contains("damaged"), "{fraction}");
    let flag = said(with_header(|header| header.replacen(r#"{\"count\":2}"#, r#"{\"flag\":true}"#, 1)));
    assert!(flag.contains("expected count, found flag"), "{flag}");
}

#[test]
fn a_header_that_claims_the_whole_memory_allocates_nothing() {
    for length in [u64::MAX, u64::MAX - 8, 1 << 62, 100_000_001, 100_000_000, 17] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(b"{}      ");
        let error = Checkpoint::from_bytes(bytes).unwrap_err();
        assert!(error.to_string().contains("a header of"), "{error}");
    }
}

#[test]
fn other_files_are_not_taken_for_checkpoints() {
    let refused = |bytes: &[u8]| Checkpoint::from_bytes(bytes.to_vec()).unwrap_err().to_string();
    let zip = refused(b"PK\x03\x04 a zip file, as PyTorch makes");
    assert_eq!(
        zip,
        "the checkpoint: it is a zip archive, as `torch.save` and `numpy.savez` write, not a safetensors file: write \
         one with `save_file` of the Python package `safetensors`"
    );
    assert_eq!(refused(b""), "the checkpoint: it is not a safetensors file: it has 0 bytes");
    assert_eq!(refused(b"four"), "the checkpoint: it is not a safetensors file: it has 4 bytes");
    assert!(refused(b"{\"adam\": {\"learning_rate\": 0.1}}").contains("it is not a safetensors file: it announces"));
    let (bytes, _) = whole();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let all = bytes.len();
    let said = format!("the checkpoint: truncated: it has {} of {all} bytes", all - 3);
    assert_eq!(refused(&bytes[..all - 3]), said);
    let said = format!("the checkpoint: truncated in a header of {} bytes: it has 100", header - 8);
    assert_eq!(refused(&bytes[..100]), said);
    let longer = format!("the checkpoint: damaged: it has {} bytes, and its header describes {all}", all + 2);
    assert_eq!(refused(&[&bytes[..], &[0, 0]].concat()), longer);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let mut nested = (deep.len() as u64).to_le_bytes().to_vec();
    nested.extend(deep.as_bytes());
    assert!(refused(&nested).contains("damaged"));

    let data = 1.0_f32.to_le_bytes();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![1], &data).unwrap();
    let strange = safetensors::serialize([("weight", view)], None).unwrap();
    assert!(refused(&strange).contains("not a checkpoint of gradchain"));
}

/// In any byte, after verification.
#[test]
fn a_file_that_changes_while_it_is_open_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let (bytes, _) = whole();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    for place in header..bytes.len() {
        std::fs::write(&path, &bytes).unwrap();
        let file = Checkpoint::open(&path).unwrap();
        file.verify().unwrap();
        let mut changed = bytes.clone();
        changed[place] ^= 0x40;
        std::fs::write(&path, &changed).unwrap();
        let mut params = model();
        let loaded = file.load(&optimizer(), &mut params);
        assert!(loaded.is_err_and(|error| error.to_string().contains("checksum")), "byte {place}");
        assert_eq!(params, model(), "byte {place}");
        let loaded = file.load_params(&mut params);
        assert!(loaded.is_ok() || params == model(), "byte {place}");
    }
}
