use super::page::Page;
use super::*;

fn external() -> Registry {
    Registry::new("node-1", external::ALL)
}

#[test]
fn the_golden_line_of_cpi() {
    let registry = external();
    let mut rows = Rows::new();
    rows.push(
        [
            ("pod_uid", "u"),
            ("pod_namespace", "koordinator-system"),
            ("pod_name", "koordlet-x"),
            ("container_id", "containerd://abc"),
            ("container_name", "koordlet"),
            ("cpi_field", "cycles"),
        ],
        2_228_787_513.0,
    );
    registry.replace(&external::CONTAINER_CPI, rows);
    assert_eq!(
        registry.page().render(),
        "# HELP koordlet_container_cpi Container cpi collected by koordlet\n\
         # TYPE koordlet_container_cpi gauge\n\
         koordlet_container_cpi{container_id=\"containerd://abc\",container_name=\"koordlet\",cpi_field=\"cycles\",\
         node=\"node-1\",pod_name=\"koordlet-x\",pod_namespace=\"koordinator-system\",pod_uid=\"u\"} 2228787513\n"
    );
}

#[test]
fn a_vector_changes_as_a_whole() {
    let registry = external();
    let rows = |names: &[&str]| {
        let mut rows = Rows::new();
        for name in names {
            rows.push([("pod_uid", *name)], 1.0);
        }
        rows
    };
    registry.replace(&external::POD_PSI, rows(&["a", "b"]));
    registry.replace(&external::POD_PSI, rows(&["c"]));
    let text = registry.page().render();
    assert!(text.contains("pod_uid=\"c\"") && !text.contains("pod_uid=\"a\""), "{text}");
    registry.replace(&external::POD_PSI, Rows::new());
    assert_eq!(registry.page().render(), "", "a family without values has no lines");
}

#[test]
fn counters_keep_their_names() {
    let registry = Registry::new("n", internal::ALL);
    registry.add(&internal::CPU_INFO_STATUS, &[("status", "succeeded")], 1.0);
    registry.add(&internal::CPU_INFO_STATUS, &[("status", "succeeded")], 1.0);
    registry.set(&internal::START_TIME, &[], 1_700_000_000.5);
    assert_eq!(
        registry.page().render(),
        "# HELP koordlet_collect_node_cpu_info_status Looks at the CPUs of the node by status\n\
         # TYPE koordlet_collect_node_cpu_info_status untyped\n\
         koordlet_collect_node_cpu_info_status{node=\"n\",status=\"succeeded\"} 2\n\
         # HELP koordlet_start_time Start of the agent in seconds since the epoch\n\
         # TYPE koordlet_start_time gauge\n\
         koordlet_start_time{node=\"n\"} 1700000000.5\n"
    );
}

#[test]
fn histograms_are_cumulative() {
    let registry = Registry::new("n", internal::ALL);
    for value in [0.0005, 0.004, 0.5, 9.0] {
        registry.observe(
            &internal::KUBELET_REQUEST,
            &[("verb", "get"), ("code", "200"), ("path", "/pods/")],
            value,
        );
    }
    let text = registry.page().render();
    let labels = "code=\"200\",";
    for (bound, count) in [("0.001", 1), ("0.004", 2), ("0.016", 2), ("1.024", 3), ("4.096", 3), ("+Inf", 4)]
    {
        let line = format!(
            "koordlet_kubelet_request_duration_seconds_bucket{{{labels}le=\"{bound}\",path=\"/pods/\",verb=\"get\"}} {count}\n"
        );
        assert!(text.contains(&line), "{line}{text}");
    }
    assert!(text.contains("_sum{code=\"200\",path=\"/pods/\",verb=\"get\"} 9.5045\n"), "{text}");
    assert!(text.contains("_count{code=\"200\",path=\"/pods/\",verb=\"get\"} 4\n"), "{text}");
}

#[test]
fn merged_pages_have_each_family_once() {
    let (one, two) = (Registry::new("n", internal::ALL), Registry::new("n", internal::ALL));
    one.set(&internal::PODS, &[], 3.0);
    two.set(&internal::PODS, &[], 4.0);
    two.set(&internal::STORE_SERIES, &[], 5.0);
    let mut page: Page = one.page();
    page.merge(two.page());
    let text = page.render();
    assert_eq!(text.matches("# TYPE koordlet_pods gauge").count(), 1, "{text}");
    assert!(
        text.contains("koordlet_pods{node=\"n\"} 3\n") && !text.contains("koordlet_pods{node=\"n\"} 4"),
        "{text}"
    );
    assert!(text.contains("koordlet_store_series{node=\"n\"} 5\n"), "{text}");
}

#[test]
fn definitions_are_sound() {
    let mut names = Vec::new();
    for definition in internal::ALL.iter().chain(external::ALL) {
        assert!(definition.name.starts_with("koordlet_"), "{}", definition.name);
        assert!(
            !definition.help.is_empty() && !definition.help.contains(['\n', '\\']),
            "{}",
            definition.name
        );
        names.push(definition.name);
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn special_numbers_and_letters() {
    assert_eq!(page::number(f64::NAN), "NaN");
    assert_eq!(page::number(f64::INFINITY), "+Inf");
    assert_eq!(page::number(f64::NEG_INFINITY), "-Inf");
    assert_eq!(page::number(0.1), "0.1");
    let registry = Registry::new("n\"\\\n", internal::ALL);
    registry.set(&internal::PODS, &[], 1.0);
    assert!(registry.page().render().contains("{node=\"n\\\"\\\\\\n\"} 1"));
}
