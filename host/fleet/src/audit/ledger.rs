//! The current verdicts: those of the last audit of all objects, updated whenever an object changes.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
};

use admittance_admission::Patch;

use super::{
    auditor::JudgedObject,
    finding::{AuditVerdict, Finding},
    reports::MAX_RESULTS,
};

/// The maximum number of findings in memory. If there are more, their verdicts are only counted.
pub const MAX_FINDINGS: usize = 50_000;

/// The verdicts on all objects, and findings for those that would be refused or changed, by namespace.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    shards: BTreeMap<Option<String>, Shard>,
    /// The names of the audited resources. Objects contain indices into this list.
    resources: Vec<String>,
    /// The number of the list that is being read.
    round: u32,
    findings: usize,
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    /// The verdict on each object of one namespace. The key of an object is a hash of its resource and its name.
    objects: HashMap<u64, AuditedObject>,
    findings: BTreeMap<(u16, String), Vec<Finding>>,
    /// Whether the namespace's report in the cluster may be outdated.
    is_changed: bool,
}

#[derive(Clone, Copy, Debug)]
struct AuditedObject {
    verdict: AuditVerdict,
    resource: u16,
    /// The number of the last list in which this object was seen.
    round: u32,
}

impl Ledger {
    pub(super) fn begin_list(&mut self, resource: &str) -> u16 {
        self.round += 1;
        let known_position = self.resources.iter().position(|name| name == resource);
        let position = known_position.unwrap_or_else(|| {
            self.resources.push(resource.to_owned());
            self.resources.len() - 1
        });
        // A position fits into 16 bits, because an API server has only a few hundred resources.
        u16::try_from(position).unwrap_or(u16::MAX)
    }

    /// Ends the list of a resource: removes those objects of the resource that the list did not contain.
    pub(super) fn end_list(&mut self, resource: u16) {
        let round = self.round;
        self.retain_objects(|object| object.resource != resource || object.round == round);
    }

    pub(super) fn keep_only(&mut self, resources: &[u16]) {
        self.retain_objects(|object| resources.contains(&object.resource));
    }

    fn retain_objects(&mut self, is_kept: impl Fn(&AuditedObject) -> bool) {
        for shard in self.shards.values_mut() {
            let before = shard.objects.len();
            shard.objects.retain(|_, object| is_kept(object));
            if shard.objects.len() == before {
                continue;
            }
            shard.is_changed = true;
            let objects = &shard.objects;
            shard.findings.retain(|(resource, name), findings| {
                let is_kept = objects.contains_key(&object_key(*resource, name));
                if !is_kept {
                    self.findings -= findings.len();
                }
                is_kept
            });
        }
    }

    pub(super) fn record(&mut self, resource: u16, judged_object: JudgedObject) {
        let JudgedObject {
            namespace,
            name,
            findings,
        } = judged_object;
        let Some(verdict) = findings.iter().map(|finding| finding.judgement.verdict).min() else {
            return self.remove(resource, namespace, &name);
        };
        let shard = self.shards.entry(namespace).or_default();
        let object = AuditedObject {
            verdict,
            resource,
            round: self.round,
        };
        let before = shard.objects.insert(object_key(resource, &name), object);
        shard.is_changed |= before.is_none_or(|before| before.verdict != verdict);
        let mut findings: Vec<_> = findings
            .into_iter()
            .filter(|finding| finding.judgement.verdict != AuditVerdict::Allowed)
            .collect();
        for finding in &mut findings {
            // The patch is dropped to save memory, because reports do not contain it.
            finding.judgement.patch = Patch::default();
        }
        let finding_key = (resource, name);
        let old = shard.findings.remove(&finding_key).unwrap_or_default();
        self.findings -= old.len();
        shard.is_changed |= old != findings;
        let has_room = shard.findings.len() < MAX_RESULTS && self.findings + findings.len() <= MAX_FINDINGS;
        if !findings.is_empty() && has_room {
            self.findings += findings.len();
            shard.findings.insert(finding_key, findings);
        }
    }

    pub(super) fn remove(&mut self, resource: u16, namespace: Option<String>, name: &str) {
        let Some(shard) = self.shards.get_mut(&namespace) else {
            return;
        };
        shard.is_changed |= shard.objects.remove(&object_key(resource, name)).is_some();
        if let Some(findings) = shard.findings.remove(&(resource, name.to_owned())) {
            self.findings -= findings.len();
        }
    }

    pub(super) fn verdicts(&self) -> BTreeMap<AuditVerdict, u64> {
        let mut verdicts: BTreeMap<_, _> = AuditVerdict::ALL.map(|verdict| (verdict, 0)).into();
        for (verdict, count) in self.shards.values().flat_map(Shard::verdicts) {
            *verdicts.entry(verdict).or_default() += count;
        }
        verdicts
    }

    pub(super) fn changed_namespaces(&self) -> Vec<Option<String>> {
        let changed = self.shards.iter().filter(|(_, shard)| shard.is_changed);
        changed.map(|(namespace, _)| namespace.clone()).collect()
    }

    pub(super) fn mark_written(&mut self, namespace: &Option<String>) {
        if let Some(shard) = self.shards.get_mut(namespace) {
            shard.is_changed = false;
            if shard.objects.is_empty() {
                self.shards.remove(namespace);
            }
        }
    }

    pub(super) fn mark_outdated(&mut self, namespace: &Option<String>) {
        if let Some(shard) = self.shards.get_mut(namespace) {
            shard.is_changed = true;
        }
    }

    pub(super) fn has_findings(&self, namespace: &Option<String>) -> bool {
        let shard = self.shards.get(namespace);
        shard.is_some_and(|shard| !shard.findings.is_empty())
    }

    pub(super) fn shard(&self, namespace: &Option<String>) -> Option<&Shard> {
        self.shards.get(namespace)
    }
}

impl Shard {
    pub(super) fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.values().flatten()
    }

    pub(super) fn verdicts(&self) -> BTreeMap<AuditVerdict, u64> {
        let mut verdicts = BTreeMap::new();
        for object in self.objects.values() {
            *verdicts.entry(object.verdict).or_default() += 1;
        }
        verdicts
    }
}

fn object_key(resource: u16, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (resource, name).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::finding::AuditResult;

    fn sample_object(namespace: &str, name: &str, verdict: AuditVerdict) -> JudgedObject {
        let finding = Finding {
            resource: "pods".to_owned(),
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
            operation: "CREATE",
            judgement: AuditResult {
                verdict,
                stage: Some("chain/stage".to_owned()),
                message: verdict.as_str().to_owned(),
                patch: Patch::default(),
            },
            before: None,
        };
        JudgedObject {
            namespace: finding.namespace.clone(),
            name: name.to_owned(),
            findings: vec![finding],
        }
    }

    fn mark_all_written(ledger: &mut Ledger) -> Vec<Option<String>> {
        let changed = ledger.changed_namespaces();
        changed.iter().for_each(|namespace| ledger.mark_written(namespace));
        changed
    }

    fn verdict_counts(ledger: &Ledger) -> [u64; 3] {
        let verdicts = ledger.verdicts();
        [AuditVerdict::Denied, AuditVerdict::Changed, AuditVerdict::Allowed].map(|verdict| verdicts[&verdict])
    }

    #[test]
    fn only_reports_that_change_are_written_again() {
        let mut ledger = Ledger::default();
        let pods = ledger.begin_list("pods");
        for (namespace, name, verdict) in [
            ("a", "bad", AuditVerdict::Denied),
            ("a", "good", AuditVerdict::Allowed),
            ("b", "changed", AuditVerdict::Changed),
        ] {
            ledger.record(pods, sample_object(namespace, name, verdict));
        }
        ledger.end_list(pods);
        assert_eq!(verdict_counts(&ledger), [1, 1, 1]);
        let [a, b] = ["a", "b"].map(|name| Some(name.to_owned()));
        assert_eq!(mark_all_written(&mut ledger), [a.clone(), b.clone()]);

        ledger.record(pods, sample_object("a", "bad", AuditVerdict::Denied));
        assert!(mark_all_written(&mut ledger).is_empty());
        ledger.record(pods, sample_object("a", "bad", AuditVerdict::Allowed));
        assert_eq!(mark_all_written(&mut ledger), std::slice::from_ref(&a));
        assert!(!ledger.has_findings(&a) && ledger.has_findings(&b));
        assert_eq!(verdict_counts(&ledger), [0, 1, 2]);

        let jobs = ledger.begin_list("jobs");
        ledger.record(jobs, sample_object("a", "bad", AuditVerdict::Denied));
        ledger.end_list(jobs);
        let pods = ledger.begin_list("pods");
        ledger.record(pods, sample_object("a", "good", AuditVerdict::Allowed));
        ledger.end_list(pods);
        assert_eq!(verdict_counts(&ledger), [1, 0, 1]);
        assert_eq!(mark_all_written(&mut ledger), [a, b]);
        ledger.keep_only(&[pods]);
        assert_eq!((verdict_counts(&ledger), ledger.findings), ([0, 0, 1], 0));
    }

    #[test]
    fn the_number_of_findings_in_memory_is_limited() {
        let mut ledger = Ledger::default();
        let pods = ledger.begin_list("pods");
        for number in 0..MAX_RESULTS + 5 {
            ledger.record(pods, sample_object("a", &number.to_string(), AuditVerdict::Denied));
        }
        let shard = ledger.shard(&Some("a".to_owned())).unwrap();
        assert_eq!(shard.findings().count(), MAX_RESULTS);
        assert_eq!(verdict_counts(&ledger)[0], MAX_RESULTS as u64 + 5);
    }
}
