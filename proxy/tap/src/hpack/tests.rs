use proptest::prelude::*;

use super::*;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn decode_all(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let mut fields = Vec::new();
    decoder.decode(block, |field| fields.push((field.name.to_vec(), field.value.to_vec())))?;
    Ok(fields)
}

fn text(fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<(String, String)> {
    let utf8 = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
    fields.iter().map(|(name, value)| (utf8(name), utf8(value))).collect()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// RFC 7541, appendix C.4: three requests with Huffman strings and one growing table.
#[test]
fn rfc_requests_with_huffman() {
    let mut decoder = Decoder::default();
    let first = decode_all(&mut decoder, &hex("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff")).unwrap();
    assert_eq!(text(&first)[3], (":authority".to_owned(), "www.example.com".to_owned()));
    assert_eq!(decoder.size, 57);
    let second = decode_all(&mut decoder, &hex("8286 84be 5886 a8eb 1064 9cbf")).unwrap();
    assert_eq!(text(&second)[4], ("cache-control".to_owned(), "no-cache".to_owned()));
    assert_eq!(decoder.size, 110);
    let third = decode_all(&mut decoder, &hex("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf"))
        .unwrap();
    assert_eq!(text(&third)[4], ("custom-key".to_owned(), "custom-value".to_owned()));
    assert_eq!(text(&third)[3], (":authority".to_owned(), "www.example.com".to_owned()));
    assert_eq!(decoder.size, 164);
}

/// RFC 7541, appendix C.6: responses with a table of 256 octets, so that entries are evicted.
#[test]
fn rfc_responses_with_eviction() {
    let mut decoder = Decoder { max_size: 256, ..Decoder::default() };
    decode_all(
        &mut decoder,
        &hex("4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
              2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3"),
    )
    .unwrap();
    assert_eq!(decoder.size, 222);
    let second = decode_all(&mut decoder, &hex("4883 640e ffc1 c0bf")).unwrap();
    assert_eq!(text(&second)[0], (":status".to_owned(), "307".to_owned()));
    assert_eq!(text(&second)[3], ("location".to_owned(), "https://www.example.com".to_owned()));
    assert_eq!(decoder.size, 222);
}

#[test]
fn faults_are_told_apart() {
    let fault = |block: &str| decode_all(&mut Decoder::default(), &hex(block)).unwrap_err();
    assert_eq!(fault("80"), HpackError::BadIndex(0));
    assert_eq!(fault("be"), HpackError::BadIndex(62));
    assert_eq!(fault("40 05 61"), HpackError::Truncated);
    assert_eq!(fault("ff ff ff ff ff ff ff 01"), HpackError::IntegerOverflow);
    assert_eq!(fault("88 20"), HpackError::BadSizeUpdate);
    assert_eq!(fault("3f e2 ff 3f"), HpackError::BadSizeUpdate); // 1 MiB + 1
    assert_eq!(fault("00 81 00 00"), HpackError::BadHuffman); // padding with zeros
    assert_eq!(fault("00 82 ff ff 00"), HpackError::BadHuffman); // padding longer than 7 bits
    assert_eq!(fault("00 84 ff ff ff ff 00"), HpackError::BadHuffman); // EOS
    assert_eq!(decode_all(&mut Decoder::default(), &hex("3f e1 ff 3f")), Ok(vec![])); // 1 MiB
}

#[test]
fn a_size_update_evicts() {
    let mut decoder = Decoder::default();
    decode_all(&mut decoder, &hex("40 01 61 01 62")).unwrap();
    assert_eq!(decoder.size, 34);
    decode_all(&mut decoder, &hex("20")).unwrap();
    assert_eq!((decoder.size, decoder.entries.len()), (0, 0));
    // An entry that can never fit empties the table and is no error.
    decode_all(&mut decoder, &hex("40 01 61 01 62")).unwrap();
    assert_eq!((decoder.size, decoder.entries.len()), (0, 0));
}

#[test]
fn refusals_need_no_table() {
    let block = trailers_only(7, "no: 50 % ü");
    let mut decoder = Decoder::default();
    let mut sensitive = false;
    let mut fields = Vec::new();
    let effect = decoder
        .decode(&block, |field| {
            sensitive |= field.sensitive;
            fields.push((field.name.to_vec(), field.value.to_vec()));
        })
        .unwrap();
    assert_eq!(effect, TableEffect::None);
    assert!(!sensitive);
    let expected = [
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-status", "7"),
        ("grpc-message", "no: 50 %25 %C3%BC"),
    ];
    assert_eq!(text(&fields), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

proptest! {
    #[test]
    fn literals_round_trip(fields in prop::collection::vec(("[a-z:-]{1,20}", prop::collection::vec(any::<u8>(), 0..300), any::<bool>()), 0..20)) {
        let mut block = Vec::new();
        encode_size_update(&mut block, 100);
        for (name, value, sensitive) in &fields {
            encode_literal(&mut block, Field { name: name.as_bytes(), value, sensitive: *sensitive });
        }
        let mut seen = Vec::new();
        let mut decoder = Decoder::default();
        decoder.decode(&block, |field| seen.push((String::from_utf8(field.name.to_vec()).unwrap(), field.value.to_vec(), field.sensitive))).unwrap();
        prop_assert_eq!(seen, fields);
        prop_assert_eq!(decoder.max_size, 100);
    }

    #[test]
    fn junk_never_panics_and_the_table_stays_bounded(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8)) {
        let mut decoder = Decoder::default();
        for block in blocks {
            let outcome = decoder.decode(&block, |_| {});
            prop_assert!(decoder.size <= decoder.max_size);
            if outcome.is_err() { break; }
        }
    }

    /// Another implementation's encoder, with its own table, is followed field by field.
    #[test]
    fn follows_another_encoder(blocks in prop::collection::vec(prop::collection::vec((0usize..6, "[a-z0-9/._-]{0,40}"), 0..12), 0..12)) {
        let names: [&[u8]; 6] = [b":path", b"content-type", b"x-a", b"grpc-timeout", b"te", b"traceparent"];
        let mut encoder = loona_hpack::Encoder::new();
        let mut decoder = Decoder::default();
        for block in blocks {
            let fields: Vec<(&[u8], &[u8])> = block.iter().map(|(at, value)| (names[*at], value.as_bytes())).collect();
            let encoded = encoder.encode(fields.iter().copied());
            let seen = decode_all(&mut decoder, &encoded).unwrap();
            let expected: Vec<(Vec<u8>, Vec<u8>)> = fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
