use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::v1;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .filter(|digit| !digit.is_whitespace())
        .map(|digit| u8::try_from(digit.to_digit(16).unwrap()).unwrap())
        .collect();
    assert_eq!(digits.len() % 2, 0);
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn patch(build: impl FnOnce(&mut Patch)) -> Patch {
    let mut patch = Patch::new();
    build(&mut patch);
    patch
}

fn apply_hex(patch: &Patch, message: &str) -> Option<String> {
    patch.apply(&bytes(message)).unwrap().map(|message| hex(&message))
}

const RUN: &str = "0a2b0a090a01701201751a016e32060a01611201313a060a0178120179420b0a092f6b756265706f6473c00c07\
                   120472756e639a06027a7a";

#[test]
fn fields_change_in_place_and_unknown_ones_survive() {
    let patch = patch(|run| {
        let config = run.message(1);
        config.set(7, Edit::Map(map(&[("k", "v")])));
        config.message(8).set(1, Edit::Bytes(b"/offline".to_vec()));
    });
    assert_eq!(
        apply_hex(&patch, RUN).unwrap(),
        "0a320a090a01701201751a016e32060a01611201313a060a0178120179420a0a082f6f66666c696e65c00c07\
         3a060a016b120176120472756e639a06027a7a"
    );
}

#[test]
fn no_effective_change_is_no_change() {
    let patch = patch(|run| {
        let config = run.message(1);
        config.set(6, Edit::Map(map(&[("a", "1")])));
        config.set(7, Edit::Map(map(&[("x", "y")])));
        config.message(8).set(1, Edit::Bytes(b"/kubepods".to_vec()));
    });
    assert_eq!(apply_hex(&patch, RUN), None);
    assert_eq!(apply_hex(&Patch::new(), RUN), None);
}

#[test]
fn a_missing_parent_is_appended() {
    let patch = patch(|run| run.message(1).message(8).set(1, Edit::Bytes(b"/off".to_vec())));
    assert_eq!(
        apply_hex(&patch, "0a0b0a090a01701201751a016e").unwrap(),
        "0a130a090a01701201751a016e42060a042f6f6666"
    );
}

#[test]
fn a_missing_parent_is_not_made_for_a_default_value() {
    let patch = patch(|run| {
        run.message(1).message(8).set(1, Edit::Bytes(Vec::new()));
        run.message(1).message(8).message(5).set(3, Edit::Varint(0));
    });
    assert_eq!(apply_hex(&patch, "0a0b0a090a01701201751a016e"), None);
}

#[test]
fn a_split_message_becomes_one() {
    let patch = patch(|run| run.message(1).set(7, Edit::Map(map(&[("x", "2")]))));
    assert_eq!(
        apply_hex(&patch, "0a0b0a090a01701201751a016e1201680a083a060a0178120131").unwrap(),
        "0a130a090a01701201751a016e3a060a0178120132120168"
    );
}

#[test]
fn an_unchanged_split_message_stays_split() {
    let patch = patch(|run| {
        run.message(1).set(7, Edit::Map(map(&[("x", "1")])));
        run.set(2, Edit::Bytes(b"r".to_vec()));
    });
    assert_eq!(
        apply_hex(&patch, "0a0b0a090a01701201751a016e1201680a083a060a0178120131").unwrap(),
        "0a0b0a090a01701201751a016e1201720a083a060a0178120131"
    );
}

#[test]
fn a_part_cut_off_does_not_run_on_into_the_next() {
    let patch = patch(|run| run.message(1).set(7, Edit::Varint(1)));
    assert_eq!(patch.apply(&bytes("0a020a02 0a020800")), Err(WireError::Length { offset: 1 }));
}

#[test]
fn container_with_binary_environment() {
    let patch = patch(|create| {
        let config = create.message(2);
        config.set(6, Edit::KeyValues(map(&[("A", "2"), ("Z", "9")])));
        config.message(15).message(1).set(3, Edit::Varint(2));
    });
    assert_eq!(
        apply_hex(&patch, "0a0373623112180a050a0163100132060a014112013132070a01421202fffe1a0742050a032f6b70")
            .unwrap(),
        "0a0373623112260a050a0163100132060a014112013232070a01421202fffe32060a015a1201397a040a0218021a0742050a032f6b70"
    );
}

#[test]
fn appended_fields_ascend() {
    let patch = patch(|update| {
        let linux = update.message(2);
        linux.set(9, Edit::Map(map(&[("resourceA", "resource A")])));
        linux.set(5, Edit::Varint(10));
        linux.set(3, Edit::Varint(500));
        linux.set(1, Edit::Varint(1000));
        linux.set(6, Edit::Bytes(b"0-31".to_vec()));
    });
    assert_eq!(
        apply_hex(&patch, "0a02633112063204302d3331").unwrap(),
        "0a02633112273204302d333108e80718f403280a4a170a097265736f7572636541120a7265736f757263652041"
    );
}

#[test]
fn scalars_are_written_at_their_last_occurrence() {
    let set = |value| patch(|message| message.set(2, Edit::Varint(value)));
    // 2: 5, 3: 1, 2: 7, 4: 1
    assert_eq!(apply_hex(&set(9), "1005180110072001").unwrap(), "180110092001");
    assert_eq!(apply_hex(&set(7), "1005180110072001"), None);
    assert_eq!(apply_hex(&set(0), "1005180110072001").unwrap(), "18012001");
    assert_eq!(apply_hex(&set(0), "18012001"), None);
    assert_eq!(apply_hex(&set(3), "18012001").unwrap(), "180120011003");
    // A written default value is the default value.
    assert_eq!(apply_hex(&set(0), "1000"), None);
    // The value counts, not the length of its varint.
    assert_eq!(apply_hex(&set(7), "108700"), None);
}

#[test]
fn a_negative_number_takes_ten_bytes() {
    let patch = patch(|resources| resources.set(2, Edit::Varint((-1_i64).cast_unsigned())));
    assert_eq!(apply_hex(&patch, "10d08603").unwrap(), "10ffffffffffffffffff01");
}

#[test]
fn text_is_written_at_its_last_occurrence() {
    let set = |value: &str| patch(|message| message.set(1, Edit::Bytes(value.into())));
    assert_eq!(apply_hex(&set("c"), "0a016110010a0162").unwrap(), "10010a0163");
    assert_eq!(apply_hex(&set("b"), "0a016110010a0162"), None);
    assert_eq!(apply_hex(&set(""), "0a016110010a0162").unwrap(), "1001");
    assert_eq!(apply_hex(&set(""), "0a00"), None);
}

#[test]
fn a_changed_map_keeps_the_last_entry_of_each_key() {
    let set = |entries: &[(&str, &str)]| patch(|message| message.set(1, Edit::Map(map(entries))));
    // a=1, b=1, a=2, 2: 1
    let message = "0a060a01611201310a060a01621201310a060a01611201321001";
    assert_eq!(apply_hex(&set(&[("a", "2"), ("b", "1")]), message), None);
    assert_eq!(apply_hex(&set(&[("b", "3")]), message).unwrap(), "0a060a01621201330a060a01611201321001");
    assert_eq!(
        apply_hex(&set(&[("d", ""), ("c", "1")]), message).unwrap(),
        "0a060a01621201310a060a016112013210010a060a01631201310a050a01641200"
    );
}

#[test]
fn a_map_entry_without_key_or_value_has_empty_ones() {
    let set = |entries: &[(&str, &str)]| patch(|message| message.set(1, Edit::Map(map(entries))));
    assert_eq!(apply_hex(&set(&[("", "")]), "0a00"), None);
    assert_eq!(apply_hex(&set(&[("", "v")]), "0a00").unwrap(), "0a050a00120176");
    assert_eq!(apply_hex(&set(&[("k", "")]), "0a030a016b"), None);
}

#[test]
fn key_values_are_a_complete_set() {
    let set = |entries: &[(&str, &str)]| patch(|message| message.set(6, Edit::KeyValues(map(entries))));
    // A=1, B=2
    let message = "32060a014112013132060a0142120132";
    assert_eq!(apply_hex(&set(&[("A", "1"), ("B", "2")]), message), None);
    assert_eq!(apply_hex(&set(&[("B", "3")]), message).unwrap(), "32060a0142120133");
    assert_eq!(
        apply_hex(&set(&[("A", "1"), ("B", "2"), ("C", "3")]), message).unwrap(),
        "32060a014112013132060a014212013232060a0143120133"
    );
    // A=1, A=2 is the set {A: 2}.
    let repeated = "32060a014112013132060a0141120132";
    assert_eq!(apply_hex(&set(&[("A", "2")]), repeated), None);
    assert_eq!(apply_hex(&set(&[("A", "3")]), repeated).unwrap(), "32060a0141120133");
    assert_eq!(apply_hex(&set(&[("A", "2"), ("B", "")]), repeated).unwrap(), "32060a014112013232030a0142");
}

#[test]
fn binary_values_stay_unless_named() {
    let set = |entries: &[(&str, &str)]| patch(|message| message.set(6, Edit::KeyValues(map(entries))));
    // B=ff fe with an unknown field 3 in the entry, A=1
    let message = "32090a01421202fffe180532060a0141120131";
    assert_eq!(apply_hex(&set(&[("A", "1")]), message), None);
    assert_eq!(apply_hex(&set(&[("C", "2")]), message).unwrap(), "32090a01421202fffe180532060a0143120132");
    assert_eq!(
        apply_hex(&set(&[("A", "1"), ("B", "x")]), message).unwrap(),
        "32080a0142120178180532060a0141120131"
    );
}

#[test]
fn elements_are_counted_from_zero() {
    let set = |index| patch(|message| message.element(5, index).set(1, Edit::Varint(9)));
    let message = "2a02080110012a020802";
    assert_eq!(apply_hex(&set(0), message).unwrap(), "2a02080910012a020802");
    assert_eq!(apply_hex(&set(1), message).unwrap(), "2a02080110012a020809");
    assert_eq!(set(2).apply(&bytes(message)), Err(WireError::Element { field: 5, index: 2 }));
}

#[test]
fn other_types_than_expected_are_errors() {
    let text = patch(|message| message.set(1, Edit::Bytes(b"x".to_vec())));
    assert_eq!(text.apply(&bytes("0801")), Err(WireError::Mismatch { field: 1 }));
    let number = patch(|message| message.set(1, Edit::Varint(1)));
    assert_eq!(number.apply(&bytes("0a0101")), Err(WireError::Mismatch { field: 1 }));
    let message = patch(|message| message.message(1).set(1, Edit::Varint(1)));
    assert_eq!(message.apply(&bytes("0a01ff")), Err(WireError::Varint { offset: 0 }));
}

#[test]
fn nesting_is_bounded() {
    let nested = |levels: usize| {
        let mut inner = patch(|message| message.set(1, Edit::Varint(1)));
        for _ in 0..levels {
            inner = patch(|message| message.set(1, Edit::Message(inner)));
        }
        inner
    };
    assert!(nested(MAX_DEPTH).apply(&[]).unwrap().is_some());
    assert_eq!(nested(MAX_DEPTH + 1).apply(&[]), Err(WireError::Depth));
}

/// What a hook may change in a CreateContainerRequest, as a patch and on the typed message.
#[derive(Debug, Clone)]
struct Wish {
    annotations: BTreeMap<String, String>,
    envs: Option<BTreeMap<String, String>>,
    shares: Option<i64>,
    cpus: Option<String>,
    unified: BTreeMap<String, String>,
    cgroup_parent: Option<String>,
}

impl Wish {
    fn patch(&self) -> Patch {
        patch(|create| {
            let config = create.message(2);
            config.set(10, Edit::Map(self.annotations.clone()));
            if let Some(envs) = &self.envs {
                config.set(6, Edit::KeyValues(envs.clone()));
            }
            let resources = config.message(15).message(1);
            if let Some(shares) = self.shares {
                resources.set(3, Edit::Varint(shares.cast_unsigned()));
            }
            if let Some(cpus) = &self.cpus {
                resources.set(6, Edit::Bytes(cpus.clone().into_bytes()));
            }
            resources.set(9, Edit::Map(self.unified.clone()));
            if let Some(parent) = &self.cgroup_parent {
                create.message(3).message(8).set(1, Edit::Bytes(parent.clone().into_bytes()));
            }
        })
    }

    fn apply(&self, create: &mut v1::CreateContainerRequest) {
        let config = create.config.get_or_insert_default();
        config.annotations.extend(self.annotations.clone());
        if let Some(wanted) = &self.envs {
            let text =
                |env: &v1::KeyValue| Some((env.key.clone(), String::from_utf8(env.value.clone()).ok()?));
            let mut last: BTreeMap<String, v1::KeyValue> = BTreeMap::new();
            let mut order = Vec::new();
            for env in &config.envs {
                order.retain(|key| *key != env.key);
                order.push(env.key.clone());
                last.insert(env.key.clone(), env.clone());
            }
            let visible: BTreeMap<String, String> = last.values().filter_map(text).collect();
            if visible != *wanted {
                config.envs = order
                    .into_iter()
                    .filter_map(|key| match wanted.get(&key) {
                        Some(value) => Some(v1::KeyValue { key, value: value.clone().into_bytes() }),
                        None => last.remove(&key).filter(|env| text(env).is_none()),
                    })
                    .chain(
                        wanted.iter().filter(|(key, _)| !config.envs.iter().any(|env| env.key == **key)).map(
                            |(key, value)| v1::KeyValue { key: key.clone(), value: value.clone().into() },
                        ),
                    )
                    .collect();
            }
        }
        let resources = config.linux.get_or_insert_default().resources.get_or_insert_default();
        if let Some(shares) = self.shares {
            resources.cpu_shares = shares;
        }
        if let Some(cpus) = &self.cpus {
            resources.cpuset_cpus = cpus.clone();
        }
        resources.unified.extend(self.unified.clone());
        if let Some(parent) = &self.cgroup_parent {
            create.sandbox_config.get_or_insert_default().linux.get_or_insert_default().cgroup_parent =
                parent.clone();
        }
    }
}

/// Makes sub-messages that hold nothing equal to missing ones; the editor does not add them.
fn without_empty_parents(mut create: v1::CreateContainerRequest) -> v1::CreateContainerRequest {
    if let Some(config) = &mut create.config {
        if let Some(linux) = &mut config.linux {
            linux.resources.take_if(|resources| *resources == v1::LinuxContainerResources::default());
        }
        config.linux.take_if(|linux| *linux == v1::LinuxContainerConfig::default());
    }
    create.config.take_if(|config| *config == v1::ContainerConfig::default());
    if let Some(sandbox) = &mut create.sandbox_config {
        sandbox.linux.take_if(|linux| *linux == v1::LinuxPodSandboxConfig::default());
    }
    create.sandbox_config.take_if(|sandbox| *sandbox == v1::PodSandboxConfig::default());
    create
}

fn text_map() -> impl Strategy<Value = BTreeMap<String, String>> {
    proptest::collection::btree_map("[a-e]?", "[xy]{0,2}", 0..4)
}

fn wish() -> impl Strategy<Value = Wish> {
    (
        text_map(),
        proptest::option::of(text_map()),
        proptest::option::of(prop_oneof![Just(0), Just(-1), 1..5000_i64]),
        proptest::option::of("[0-3]?"),
        text_map(),
        proptest::option::of("/[ab]{0,2}|"),
    )
        .prop_map(|(annotations, envs, shares, cpus, unified, cgroup_parent)| Wish {
            annotations,
            envs,
            shares,
            cpus,
            unified,
            cgroup_parent,
        })
}

fn resources() -> impl Strategy<Value = v1::LinuxContainerResources> {
    (prop_oneof![Just(0), 1..5000_i64], -1..2_i64, "[0-3]?", text_map()).prop_map(
        |(cpu_shares, cpu_quota, cpuset_cpus, unified)| v1::LinuxContainerResources {
            cpu_shares,
            cpu_quota,
            cpuset_cpus,
            unified,
            ..Default::default()
        },
    )
}

fn create_request() -> impl Strategy<Value = v1::CreateContainerRequest> {
    let env = ("[a-e]?", prop_oneof![Just(vec![0xff]), Just(b"x".to_vec()), Just(Vec::new())])
        .prop_map(|(key, value)| v1::KeyValue { key, value });
    (
        "[a-z]{0,3}",
        proptest::collection::vec(env, 0..5),
        text_map(),
        proptest::option::of(proptest::option::of(resources())),
        proptest::option::of(proptest::option::of("/[ab]{0,2}")),
    )
        .prop_map(|(id, envs, annotations, linux, sandbox)| v1::CreateContainerRequest {
            pod_sandbox_id: id,
            config: Some(v1::ContainerConfig {
                envs,
                annotations,
                linux: linux.map(|resources| v1::LinuxContainerConfig { resources, ..Default::default() }),
                ..Default::default()
            }),
            sandbox_config: sandbox.map(|linux| v1::PodSandboxConfig {
                linux: linux
                    .map(|cgroup_parent| v1::LinuxPodSandboxConfig { cgroup_parent, ..Default::default() }),
                ..Default::default()
            }),
        })
}

/// Numbers no CRI message uses.
fn unknown_field() -> impl Strategy<Value = Vec<u8>> {
    (900..2000_u32, any::<u64>(), proptest::collection::vec(any::<u8>(), 0..4), any::<bool>()).prop_map(
        |(number, value, payload, is_number)| {
            encoded(|out| match is_number {
                true => put_varint_field(out, number, value),
                false => put_bytes_field(out, number, &payload),
            })
        },
    )
}

/// The same message in another legal encoding: config and sandbox config in two parts with
/// unknown fields inside and between.
fn spread(message: &[u8], unknown: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut unknown_fields = unknown.iter().cycle();
    for field in Reader::new(message) {
        let field = field.unwrap();
        if let (2 | 3, Ok(payload)) = (field.number, field.bytes()) {
            let inner: Vec<_> = Reader::new(payload).map(Result::unwrap).collect();
            let (first, second) = inner.split_at(inner.len() / 2);
            for half in [first, second] {
                let mut part = Vec::new();
                for field in half {
                    part.extend_from_slice(field.raw);
                    part.extend_from_slice(unknown_fields.next().map_or(&[][..], Vec::as_slice));
                }
                put_bytes_field(&mut out, field.number, &part);
            }
        } else {
            out.extend_from_slice(field.raw);
        }
        out.extend_from_slice(unknown_fields.next().map_or(&[][..], Vec::as_slice));
    }
    out
}

/// The unknown fields of the request, its config and its sandbox config, in order.
fn unknown_fields(message: &[u8]) -> Vec<Vec<u8>> {
    let mut lists = vec![Vec::new(), Vec::new(), Vec::new()];
    for field in Reader::new(message).map(Result::unwrap) {
        match field.number {
            2 | 3 => {
                let list = &mut lists[field.number as usize - 1];
                for inner in Reader::new(field.bytes().unwrap()).map(Result::unwrap) {
                    if inner.number >= 900 {
                        list.extend_from_slice(inner.raw);
                    }
                }
            }
            900.. => lists[0].extend_from_slice(field.raw),
            _ => {}
        }
    }
    lists
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn patch_then_decode_is_decode_then_patch(
        request in create_request(),
        wish in wish(),
        unknown in proptest::collection::vec(unknown_field(), 0..4),
    ) {
        let message = spread(&request.encode_to_vec(), &unknown);
        let patched = wish.patch().apply(&message).unwrap();

        let mut expected = v1::CreateContainerRequest::decode(&message[..]).unwrap();
        wish.apply(&mut expected);
        let actual = v1::CreateContainerRequest::decode(patched.as_deref().unwrap_or(&message)).unwrap();
        prop_assert_eq!(without_empty_parents(actual), without_empty_parents(expected));

        if let Some(patched) = &patched {
            prop_assert_eq!(unknown_fields(patched), unknown_fields(&message));
            prop_assert_ne!(patched, &message);
            // The result already is as the patch says.
            prop_assert_eq!(wish.patch().apply(patched).unwrap(), None);
        }
    }

    #[test]
    fn a_wish_for_what_is_there_changes_nothing(
        request in create_request(),
        unknown in proptest::collection::vec(unknown_field(), 0..4),
    ) {
        let message = spread(&request.encode_to_vec(), &unknown);
        let config = request.config.unwrap();
        let resources = config.linux.unwrap_or_default().resources.unwrap_or_default();
        let text = |env: &v1::KeyValue| Some((env.key.clone(), String::from_utf8(env.value.clone()).ok()?));
        let last: BTreeMap<&str, &v1::KeyValue> = config.envs.iter().map(|env| (env.key.as_str(), env)).collect();
        let wish = Wish {
            annotations: config.annotations,
            envs: Some(last.into_values().filter_map(text).collect()),
            shares: Some(resources.cpu_shares),
            cpus: Some(resources.cpuset_cpus),
            unified: resources.unified,
            cgroup_parent: Some(request.sandbox_config.unwrap_or_default().linux.unwrap_or_default().cgroup_parent),
        };
        prop_assert_eq!(wish.patch().apply(&message).unwrap(), None);
    }

    #[test]
    fn junk_never_panics(message in proptest::collection::vec(any::<u8>(), 0..64), wish in wish()) {
        if let Ok(Some(patched)) = wish.patch().apply(&message) {
            prop_assert_eq!(wish.patch().apply(&patched).unwrap(), None);
        }
    }
}

#[test]
fn a_list_gets_the_elements_it_lacks() {
    let wanted = |elements: &[&[u8]]| {
        patch(|message| elements.iter().for_each(|element| message.present(8, element.to_vec())))
    };
    // Field 8 holds "a"; "b" is missing, and is appended once however often it is named.
    assert_eq!(apply_hex(&wanted(&[b"a", b"b", b"b"]), "420161").unwrap(), "420161420162");
    assert_eq!(apply_hex(&wanted(&[b"a"]), "420161"), None);
    assert_eq!(apply_hex(&wanted(&[b"b"]), "").unwrap(), "420162");
    // After other appended fields, before higher ones.
    let mixed = patch(|message| {
        message.set(9, Edit::Varint(1));
        message.present(8, b"b".to_vec());
        message.set(7, Edit::Varint(1));
    });
    assert_eq!(apply_hex(&mixed, "420161").unwrap(), "42016138014201624801");
    // A varint where a list of messages belongs is an error.
    assert!(wanted(&[b"b"]).apply(&bytes("4001")).is_err());
}
