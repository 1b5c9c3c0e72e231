//! Builds chains from documents, and checks for conflicts between them.

use std::{collections::HashMap, path::PathBuf};

use admittance_admission::{Phase, pause};

use crate::{
    DefinitionSet,
    document::{self, Document, Location, Mistake, Mistakes, Node, UNINTERRUPTED, quoted},
    forms::bcs,
    forms::gatekeeper::{
        self, ConstraintDocument, ExpansionDocument, MutatorDocument, Surroundings, Sync, TemplateDocument,
    },
    forms::kubernetes::{
        self, openapi,
        policy::{self, BindingDocument, PolicyDocument},
        resource::{self, ResourceDocument},
        typing,
    },
    forms::kubewarden,
    forms::native,
    forms::native::exception::{self, ExceptionDefinition},
    forms::openkruise::{self, Canary},
    forms::{self, Form},
    model::ChainDefinition,
    store::read_what_is_there,
};

/// Read the chains of these files, and of the files `*.yaml`, `*.yml` and `*.json` in these directories
/// (not in directories inside of them; hidden files and editors' backups are passed over).
///
/// The mutating chains come first, then the validating ones, each sorted by name: the order they are
/// called in, as kube-apiserver orders webhook configurations. A name is unique in its phase, and of BCS
/// definitions there is one for each operation and kind, as BCS documents it.
///
/// # Errors
///
/// Every mistake of every file.
pub fn load(paths: &[PathBuf]) -> Result<Vec<ChainDefinition>, Mistakes> {
    Ok(Definitions::load(paths)?.chains)
}

/// As [`load`], from a text. `name` stands for the file in mistakes; relative paths in the text are
/// taken from its directory.
///
/// # Errors
///
/// Every mistake in it.
pub fn load_text(name: &str, text: &str) -> Result<Vec<ChainDefinition>, Mistakes> {
    let mut mistakes = Mistakes::new();
    let documents = document::read_text(name, text, &mut mistakes);
    of_documents(&documents, mistakes).map(|definitions| definitions.chains)
}

/// The kinds of definitions that are neither chains nor stages.
const SUPPORTING: [&str; 5] = [
    "Config",
    "CustomResourceDefinition",
    "ExpansionTemplate",
    OPENAPI,
    "SyncSet",
];
const OPENAPI: &str = "OpenAPI document";

/// What documents define.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Definitions {
    /// The chains, in the order they are called. Their stages have their exceptions.
    pub chains: Vec<ChainDefinition>,
    /// The exceptions, sorted by name.
    pub exceptions: Vec<ExceptionDefinition>,
    /// Kind and name of each definition on which chains depend, and which is none itself, such as a `SyncSet`; sorted.
    pub supporting: Vec<String>,
}

impl Definitions {
    /// Reads the chains, as [`load`] does, and the exceptions.
    ///
    /// # Errors
    ///
    /// Every mistake of every file.
    pub fn load(paths: &[PathBuf]) -> Result<Self, Mistakes> {
        let mut mistakes = Mistakes::new();
        let files = read_what_is_there(paths, &mut mistakes);
        DefinitionSet::of_files(files).definitions_after(mistakes)
    }
}

/// The scalars of native chains in these files that YAML 1.2 reads differently, with both readings. Chains with mistakes have
/// them too.
pub fn ambiguities(paths: &[PathBuf]) -> Vec<Mistake> {
    let ignored = &mut Mistakes::new();
    let documents = DefinitionSet::of_files(read_what_is_there(paths, ignored)).parse(ignored);
    let documents = documents.iter().flatten();
    let definitions = documents.flat_map(|document| forms::definitions(document, &mut Mistakes::new()));
    let native = definitions.filter(|(form, _)| matches!(form, Form::Native { .. }));
    native.flat_map(|(_, root)| root.ambiguities()).collect()
}

/// What these documents define; `mistakes` are those of reading them.
pub(crate) fn of_documents<'a>(
    documents: impl IntoIterator<Item = &'a Document>,
    mut mistakes: Mistakes,
) -> Result<Definitions, Mistakes> {
    let mut chains = Chains::default();
    chains.read_all(documents, &mut mistakes);
    let definitions = chains.bound(&mut mistakes);
    mistakes.into_result(definitions)
}

/// Checks these documents without others: the policy of a binding may be elsewhere.
pub(crate) fn check_each<'a>(
    documents: impl IntoIterator<Item = &'a Document>,
    mut mistakes: Mistakes,
) -> Result<(), Mistakes> {
    Chains::default().read_all(documents, &mut mistakes);
    mistakes.into_result(())
}

/// The chain of a single definition; `None` if it is incomplete, and for a binding, which is a stage of its policy's
/// chain.
pub(crate) fn of_definition(form: Form, root: &Node<'_>) -> Option<ChainDefinition> {
    let mut chains = Chains::default();
    chains.read(form, root, &mut Mistakes::new());
    chains.bound(&mut Mistakes::new()).chains.pop()
}

/// Whether this definition, by itself, has no mistakes.
pub(crate) fn is_valid(form: Form, root: &Node<'_>) -> bool {
    Chains::default().accept(form, root).is_ok()
}

/// The chains that were read so far, and the names that must be unique.
#[derive(Default)]
pub(crate) struct Chains {
    chains: Vec<ChainDefinition>,
    policies: Vec<PolicyDocument>,
    bindings: Vec<BindingDocument>,
    resources: Vec<ResourceDocument>,
    templates: Vec<TemplateDocument>,
    constraints: Vec<ConstraintDocument>,
    syncs: Vec<Sync>,
    expansions: Vec<ExpansionDocument>,
    exceptions: Vec<ExceptionDefinition>,
    mutators: Vec<MutatorDocument>,
    canaries: Vec<Canary>,
    /// By what has the name, a chain or a binding, and its phase.
    names: HashMap<(&'static str, Phase, String), Location>,
    subjects: HashMap<bcs::Subject, Location>,
}

impl Chains {
    /// The definitions of these documents.
    pub(crate) fn read_all<'a>(
        &mut self,
        documents: impl IntoIterator<Item = &'a Document>,
        mistakes: &mut Mistakes,
    ) {
        for (index, document) in documents.into_iter().enumerate() {
            pause(index, UNINTERRUPTED);
            for (form, root) in forms::definitions(document, mistakes) {
                self.read(form, &root, mistakes);
            }
        }
    }

    /// The chains of this file that are whole by themselves: not those of policies with bindings.
    pub(crate) fn of_file(&self, file: &str) -> impl Iterator<Item = &ChainDefinition> {
        self.chains.iter().filter(move |chain| chain.source.file == file)
    }

    /// What is wrong between definitions: those that need another one which is not there, or which they do not fit.
    pub(crate) fn unbound(&self) -> Mistakes {
        let mut mistakes = Mistakes::new();
        for binding in &self.bindings {
            binding.check(&self.policies, &mut mistakes);
        }
        for constraint in &self.constraints {
            constraint.check(&self.templates, &mut mistakes);
        }
        for canary in &self.canaries {
            canary.check(&self.canaries, &mut mistakes);
        }
        for template in &self.templates {
            template.chain(self.surroundings(), &mut mistakes);
        }
        mistakes
    }

    fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            constraints: &self.constraints,
            syncs: &self.syncs,
            expansions: &self.expansions,
            mutators: &self.mutators,
        }
    }

    /// Removes the chains of this file.
    pub(crate) fn forget(&mut self, file: &str) {
        self.chains.retain(|chain| chain.source.file != file);
        self.policies.retain(|policy| policy.source.file != file);
        self.bindings.retain(|binding| binding.source.file != file);
        self.resources.retain(|resource| resource.source.file != file);
        self.templates.retain(|template| template.source.file != file);
        self.constraints
            .retain(|constraint| constraint.source.file != file);
        self.syncs.retain(|sync| sync.source.file != file);
        self.expansions.retain(|template| template.source.file != file);
        self.exceptions.retain(|exception| exception.source.file != file);
        self.mutators.retain(|mutator| mutator.source.file != file);
        self.canaries.retain(|canary| canary.location.file != file);
        self.names.retain(|_, location| location.file != file);
        self.subjects.retain(|_, location| location.file != file);
    }

    /// Whether this definition has no mistakes and does not conflict with those before. Only then it is added.
    pub(crate) fn accept(&mut self, form: Form, root: &Node<'_>) -> Result<(), Mistakes> {
        let mut mistakes = Mistakes::new();
        Self::default().read(form, root, &mut mistakes);
        if mistakes.is_empty() {
            self.read(form, root, &mut mistakes);
        }
        mistakes.into_result(())
    }

    /// The chains, with those of the policies, each of which has its bindings as stages; and the exceptions, which their
    /// stages have.
    pub(crate) fn bound(mut self, mistakes: &mut Mistakes) -> Definitions {
        for binding in &self.bindings {
            binding.check(&self.policies, mistakes);
        }
        for canary in &self.canaries {
            canary.check(&self.canaries, mistakes);
        }
        openkruise::prefer(&self.canaries, &mut self.chains);
        typing::use_schemas(&mut self.chains, &self.resources);
        let of_policies = self.policies.iter();
        let of_policies = of_policies.map(|policy| policy.chain(&self.bindings, &self.resources));
        let of_policies: Vec<_> = of_policies.collect();
        for constraint in &self.constraints {
            constraint.check(&self.templates, mistakes);
        }
        let of_templates = self.templates.iter();
        let of_templates = of_templates.map(|template| template.chain(self.surroundings(), mistakes));
        let of_templates: Vec<_> = of_templates.collect();
        self.chains.extend(of_policies);
        self.chains.extend(of_templates);
        let of_mutators = gatekeeper::chain_of_mutators(&self.mutators, &self.syncs, &self.expansions);
        self.chains.extend(of_mutators);
        self.chains
            .sort_by(|a, b| (a.phase, &a.name).cmp(&(b.phase, &b.name)));
        self.exceptions
            .sort_by(|a, b| a.exception.name.cmp(&b.exception.name));
        for exception in &self.exceptions {
            exception.attach(&mut self.chains);
        }
        let names = self.names.keys().filter(|(kind, ..)| SUPPORTING.contains(kind));
        let mut supporting: Vec<_> = names.map(|(kind, _, name)| format!("{kind} {name}")).collect();
        supporting.sort();
        Definitions {
            chains: self.chains,
            exceptions: self.exceptions,
            supporting,
        }
    }

    fn read(&mut self, form: Form, root: &Node<'_>, mistakes: &mut Mistakes) {
        let chain = match form {
            Form::Policy(phase) => {
                if let Some(policy) = policy::read_policy(root, phase, mistakes)
                    && self.is_new("chain", phase, &policy.name, root, mistakes)
                {
                    self.policies.push(policy);
                }
                return;
            }
            Form::Binding(phase) => {
                if let Some(binding) = policy::read_binding(root, phase, mistakes)
                    && self.is_new("binding", phase, &binding.name, root, mistakes)
                {
                    self.bindings.push(binding);
                }
                return;
            }
            Form::Resource => {
                if let Some(resource) = resource::read_resource(root, mistakes)
                    && self.is_new(
                        "CustomResourceDefinition",
                        Phase::default(),
                        &resource.name,
                        root,
                        mistakes,
                    )
                {
                    self.resources.push(resource);
                }
                return;
            }
            Form::OpenApi => {
                let key = (OPENAPI, Phase::default(), root.location().file);
                self.names.insert(key, root.location());
                self.resources.extend(openapi::read(root, mistakes));
                return;
            }
            Form::Gatekeeper(document) => {
                self.read_gatekeeper(document, root, mistakes);
                return;
            }
            Form::Exception => {
                if let Some(exception) = exception::read(root, mistakes)
                    && self.is_new(
                        "exception",
                        Phase::default(),
                        &exception.exception.name,
                        root,
                        mistakes,
                    )
                {
                    self.exceptions.push(exception);
                }
                return;
            }
            Form::Native { is_namespaced } => native::read(root, is_namespaced, mistakes),
            Form::Kubernetes(phase, version) => kubernetes::read(root, phase, version, mistakes),
            Form::Kubewarden(policy) => kubewarden::read(root, policy, mistakes),
            Form::SidecarSet => openkruise::read(root, mistakes).map(|(chain, canary)| {
                self.canaries.extend(canary);
                chain
            }),
            Form::Bcs => bcs::read(root, mistakes).and_then(|read| self.of_bcs(read, mistakes)),
            Form::BcsResource => {
                bcs::read_custom_resource(root, mistakes).and_then(|read| self.of_bcs(read, mistakes))
            }
        };
        if let Some(chain) = chain
            && self.is_new("chain", chain.phase, &chain.name, root, mistakes)
        {
            self.chains.push(chain);
        }
    }

    fn read_gatekeeper(&mut self, document: gatekeeper::Document, root: &Node<'_>, mistakes: &mut Mistakes) {
        let phase = Phase::Validating;
        match document {
            gatekeeper::Document::Template => {
                if let Some(template) = gatekeeper::read_template(root, mistakes)
                    && self.is_new("chain", phase, &template.name, root, mistakes)
                {
                    self.templates.push(template);
                }
            }
            gatekeeper::Document::Constraint => {
                if let Some(constraint) = gatekeeper::read_constraint(root, mistakes) {
                    let name = format!("{}/{}", constraint.kind, constraint.name);
                    if self.is_new("constraint", phase, &name, root, mistakes) {
                        self.constraints.push(constraint);
                    }
                }
            }
            gatekeeper::Document::Config => {
                if let Some(sync) = gatekeeper::read_config(root, mistakes)
                    && self.is_new("Config", phase, "config", root, mistakes)
                {
                    self.syncs.push(sync);
                }
            }
            gatekeeper::Document::SyncSet => {
                if let Some((name, sync)) = gatekeeper::read_sync_set(root, mistakes)
                    && self.is_new("SyncSet", phase, &name, root, mistakes)
                {
                    self.syncs.push(sync);
                }
            }
            gatekeeper::Document::Expansion => {
                if let Some(template) = gatekeeper::read_expansion(root, mistakes)
                    && self.is_new("ExpansionTemplate", phase, &template.name, root, mistakes)
                    && template.is_acyclic(&self.expansions, root, mistakes)
                {
                    self.expansions.push(template);
                }
            }
            gatekeeper::Document::Mutator(kind) => {
                if let Some(mutator) = gatekeeper::read_mutator(root, kind, mistakes)
                    && self.is_new("mutator", Phase::Mutating, mutator.full_name(), root, mistakes)
                    && mutator.is_consistent(&self.mutators, root, mistakes)
                    && (!self.mutators.is_empty()
                        || self.is_new(
                            "chain",
                            Phase::Mutating,
                            gatekeeper::CHAIN_OF_MUTATORS,
                            root,
                            mistakes,
                        ))
                {
                    self.mutators.push(mutator);
                }
            }
        }
    }

    /// Whether no chain or binding of this phase before has this name.
    fn is_new(
        &mut self,
        what: &'static str,
        phase: Phase,
        name: &str,
        root: &Node<'_>,
        mistakes: &mut Mistakes,
    ) -> bool {
        let key = (what, phase, name.to_owned());
        if let Some(first) = self.names.get(&key) {
            let path = match root.path() {
                "" => "metadata.name".to_owned(),
                path => format!("{path}.metadata.name"),
            };
            mistakes.push(Mistake {
                location: root.location(),
                path,
                message: format!("{} is also the name of the {what} in {first}", quoted(name)),
                fix: format!("give each {what} its own name"),
            });
            return false;
        }
        self.names.insert(key, root.location());
        true
    }

    /// The chain of a BCS definition, whose subject is held to be the only one.
    fn of_bcs(&mut self, read: bcs::BcsDefinition<'_>, mistakes: &mut Mistakes) -> Option<ChainDefinition> {
        if let Some((subject, node)) = read.subject {
            match self.subjects.get(&subject) {
                None => {
                    self.subjects.insert(subject, node.location());
                }
                Some(first) => {
                    let message = format!("{first} already defines hooks for {subject}");
                    let fix = "BCS has one definition for each operation and kind: put the hooks into one";
                    node.wrong(message, fix, mistakes);
                }
            }
        }
        read.chain
    }
}

#[cfg(test)]
mod tests;
