//! OOMScoreAdj: in which order the out-of-memory killer looks at containers.

use koord_extension::gates::Gate;

use crate::facts::{PodFacts, known};
use crate::field::Field;
use crate::plan::{Plan, Rule};
use crate::view::NodeView;

const RULE: Rule = Rule::OomScoreAdj;

/// The container's own value counts before the pod's. A value that cannot be is skipped.
pub(crate) fn container(node: &NodeView, facts: &PodFacts, name: &str, plan: &mut Plan) {
    if !node.gates.enabled(Gate::OomScoreAdj) {
        return;
    }
    if facts.oom_spec.is_err() {
        known(&facts.oom_spec, RULE, plan);
        return;
    }
    let own =
        facts.oom_spec.as_ref().ok().and_then(Option::as_ref).and_then(|spec| spec.0.get(name).copied());
    let (score, whose) = match own {
        Some(score) => (score, "container"),
        None => match known(&facts.oom_default, RULE, plan) {
            Some(Some(score)) => (*score, "pod"),
            _ => return,
        },
    };
    if !(-1000..=1000).contains(&score) {
        return plan.problem(RULE, format!("oom_score_adj {score} of the {whose} is outside -1000 to 1000"));
    }
    plan.number(RULE, Field::OomScoreAdj, score, || format!("the {whose} asks for {score}"));
}
