// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "github.com/nslifecycle/nslifecycle/api/v1alpha1"

// LabelName and Name are a label and its value on the objects of an installation, and on those that messages and
// commands of this project print. `make undeploy` selects them by this label.
const (
	LabelName = "app.kubernetes.io/name"
	Name      = "nslifecycle"
)

// LabelPolicy is a label on the admission policies and bindings of this project. Its value is one
// of the Policy constants. The operator finds the policies by this label, since an installation can
// add a prefix to their names.
const LabelPolicy = v1alpha1.Prefix + "policy"

// The admission policies in config/admission, config/mutating and config/validating.
const (
	// PolicyInject adds the list of pending initializers to a new Namespace.
	PolicyInject = "inject"
	// PolicyComplete removes the pending list and the label in the write that empties the list. It
	// also restores state that a write omits.
	PolicyComplete = "complete"
	// PolicyGate rejects writes to an initializing namespace by users without VerbInitialize.
	PolicyGate = "gate"
	// PolicyWaitingSubjects extends PolicyGate to the waitingSubjects of the effective set, who hold
	// VerbInitialize.
	PolicyWaitingSubjects = "waiting-subjects"
	// PolicyInitializerSubjects restricts who can change the pending list to the subjects of the
	// initializers, and excludes waitingSubjects.
	PolicyInitializerSubjects = "initializer-subjects"
	// PolicyConfinedInitializers limits the subjects of initializers with a confinement. The operator applies the
	// policy.
	PolicyConfinedInitializers = "confined-initializers"
	// PolicyGuard protects the state of the initialization that is recorded on the Namespace.
	PolicyGuard = "guard"
	// PolicyTemplates validates the templates and parameters that users choose for a Namespace.
	PolicyTemplates = "templates"
	// PolicyUnusedSettings warns of labels and annotations of a Namespace that have no effect.
	PolicyUnusedSettings = "unused-settings"
	// PolicyTemplateAuthors requires that the author of a NamespaceTemplate can impersonate its
	// ServiceAccount and read the sources of its copies.
	PolicyTemplateAuthors = "template-authors"
	// PolicyInitializerAuthors requires that a user who confines a ServiceAccount can impersonate it.
	PolicyInitializerAuthors = "initializer-authors"
	// PolicyTemplateObjects rejects changes to locked objects, and objects that the operator has rendered
	// for another Namespace.
	PolicyTemplateObjects = "template-objects"
	// PolicyRequireSet rejects new Namespaces with LabelInitializing while no
	// NamespaceInitializerSet exists.
	PolicyRequireSet = "require-set"
	// PolicyConfine limits what the operator can write (config/confine).
	PolicyConfine = "confine"
)

// PolicyProtection rejects the deletion of Namespaces with LabelDeletionProtection. It is not installed by default
// (config/protection).
const PolicyProtection = "protection"

// The webhook configurations in config/webhook.
const (
	// InjectConfiguration is the name of the MutatingWebhookConfiguration that replaces the policies PolicyInject and
	// PolicyComplete if the API server does not serve them. The MutatingAdmissionPolicy PolicyInject has the same name.
	InjectConfiguration = "nslifecycle-inject"
	// HoldConfiguration is the name of the MutatingWebhookConfiguration that holds writes to initializing
	// Namespaces.
	HoldConfiguration = "nslifecycle-hold"
	// TemplatesConfiguration is the name of the ValidatingWebhookConfiguration that validates
	// NamespaceTemplates.
	TemplatesConfiguration = "nslifecycle-templates"
)

// ExtraReview is the key of an extra value of the user in SubjectAccessReviews that the operator creates. The
// authorization webhook has no opinion about them: it would hold them until the Namespace is initialized, and the
// initialization can wait for their result.
const ExtraReview = "nslifecycle.dev/review"
