// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Labels and annotations that record the state of the initialization of a Namespace. Users cannot
// set them: the admission policies write and protect them (config/admission).
const (
	// Prefix is the prefix of the label and annotation keys of this project.
	Prefix = "nslifecycle.dev/"

	// LabelInitializing is "true" on a Namespace if and only if its list of pending initializers is
	// not empty. The gate policy selects Namespaces by this label.
	LabelInitializing = Prefix + "initializing"

	// AnnotationPendingInitializers contains the names of the pending initializers, comma-separated
	// and in order (spec.initializers.pending in the KEP). An initializer that has finished removes
	// its own name. When the list becomes empty, the API server removes the annotation and the
	// label.
	AnnotationPendingInitializers = Prefix + "pending-initializers"

	// AnnotationInitializers contains the names of all initializers that were pending when the
	// Namespace was created. It is immutable. The operator computes the progress from it. A Namespace
	// without this annotation has never had initializers.
	AnnotationInitializers = Prefix + "initializers"

	// AnnotationInitializationResult contains a metav1.Status as JSON (spec.initializers.result in the
	// KEP). If its status is "Failure", the initialization has failed, and the operator deletes the
	// Namespace.
	AnnotationInitializationResult = Prefix + "initialization-result"

	// AnnotationRequestedBy contains the name of the user who created the Namespace, as
	// authenticated by the API server. It is immutable.
	AnnotationRequestedBy = Prefix + "requested-by"

	// AnnotationSelectedTemplates contains the names of the NamespaceTemplates that selected the Namespace in
	// the request that created it, comma-separated. It is immutable. Only these templates are applied while
	// the Namespace is initializing, and limit the number of Namespaces of a user.
	AnnotationSelectedTemplates = Prefix + "selected-templates"
)

// Labels and annotations that users set on a Namespace. The policies for them are not installed by
// default (config/protection, config/expiry).
const (
	// LabelDeletionProtection protects a Namespace from deletion, regardless of its value.
	LabelDeletionProtection = Prefix + "deletion-protection"

	// AnnotationExpiresAt is the time when the operator deletes the Namespace, in RFC 3339 format.
	AnnotationExpiresAt = Prefix + "expires-at"

	// AnnotationTTL is the time from the creation of the Namespace to its deletion in days, hours,
	// minutes and seconds, such as "7d" or "1h30m". It cannot be combined with AnnotationExpiresAt.
	AnnotationTTL = Prefix + "ttl"
)

// TemplatesInitializer is the name of the initializer that applies NamespaceTemplates. It is registered
// while templates exist, and only Namespaces that a template selects get it. A
// NamespaceInitializerConfiguration can name it, to change its position or its settings.
const TemplatesInitializer = "templates.nslifecycle.dev"

// Labels and annotations of NamespaceTemplates.
const (
	// LabelTemplate on a Namespace is the name of a NamespaceTemplate that the creator has chosen. On an
	// object, it is the name of the NamespaceTemplate that contains the object.
	LabelTemplate = Prefix + "template"

	// LabelLocked on an object makes the API server reject changes to the object.
	LabelLocked = Prefix + "locked"

	// AnnotationNamespaceUID on an object of a template is the UID of its Namespace. The API server
	// rejects the object if the Namespace was recreated.
	AnnotationNamespaceUID = Prefix + "namespace-uid"

	// AnnotationTemplates on a Namespace records, as JSON, the templates and revisions whose objects the
	// Namespace contains. The operator writes it.
	AnnotationTemplates = Prefix + "templates"

	// AnnotationServiceAccount on a ControllerRevision is the ServiceAccount that the NamespaceTemplate had
	// with this revision.
	AnnotationServiceAccount = Prefix + "service-account"

	// FinalizerTemplate is a finalizer of a NamespaceTemplate whose objects are deleted with it.
	FinalizerTemplate = Prefix + "template"

	// PrefixParameter is the prefix of annotations with the values of template parameters.
	PrefixParameter = "parameter." + Prefix
)

// LabelPolicy is a label on the admission policies and bindings of this project. Its value is one
// of the Policy constants. The operator finds the policies by this label, since an installation can
// add a prefix to their names.
const LabelPolicy = Prefix + "policy"

// The admission policies in config/admission and config/mutating.
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
	// PolicyTemplateAuthors requires that the author of a NamespaceTemplate can impersonate its
	// ServiceAccount and read the sources of its copies.
	PolicyTemplateAuthors = "template-authors"
	// PolicyTemplateObjects rejects changes to locked objects, and objects that the operator has rendered
	// for another Namespace.
	PolicyTemplateObjects = "template-objects"
	// PolicyRequireSet rejects new Namespaces with LabelInitializing while no
	// NamespaceInitializerSet exists.
	PolicyRequireSet = "require-set"
	// PolicyConfine limits what the operator can write (config/confine).
	PolicyConfine = "confine"
)

// The admission policies that are not installed by default, in config/protection, config/expiry and
// config/owners.
const (
	// PolicyProtection rejects the deletion of Namespaces with LabelDeletionProtection.
	PolicyProtection = "protection"
	// PolicyExpiry restricts who can make a Namespace expire, and validates the annotations.
	PolicyExpiry = "expiry"
	// PolicyNamespaceOwners restricts the deletion of Namespaces to their creators and to users with
	// VerbDeleteAny.
	PolicyNamespaceOwners = "namespace-owners"
)

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

// VerbInitialize is the RBAC verb on namespaces that allows users to write to initializing
// namespaces and to change the pending list. It must be granted at cluster scope.
const VerbInitialize = "initialize"

// VerbFurnish is the RBAC verb on namespaces that allows the ServiceAccounts of templates to write to
// initializing namespaces. It does not allow changes to the pending list. It must be granted at cluster
// scope.
const VerbFurnish = "furnish"

// VerbUse is the RBAC verb on namespacetemplates that allows users to choose a template with
// AccessRestricted.
const VerbUse = "use"

// VerbDeleteAny is the RBAC verb on namespaces that allows users to delete Namespaces that other users
// have created, in addition to the verb "delete" (config/owners).
const VerbDeleteAny = "delete-any"

// EffectiveSetName is the name of the only NamespaceInitializerSet.
const EffectiveSetName = "effective"

// Condition types of a Namespace.
const (
	// ConditionInitializing is True while initializers are pending, and False afterwards. The
	// operator sets it on every Namespace, so that clients can always wait for it.
	ConditionInitializing = "Initializing"

	// ConditionInitializedSuffix is the suffix of the condition type of an initializer. The condition
	// is False while the initializer is pending and True when it has finished.
	ConditionInitializedSuffix = "/Initialized"

	// ConditionInitializerTurn is True while it is the turn of an initializer with a timeout. The
	// message names the initializer. The timeout starts at lastTransitionTime. The condition
	// does not exist on a Namespace that has never waited for an initializer with a timeout.
	ConditionInitializerTurn = Prefix + "InitializerTurn"

	// ConditionDeletionBlocked is True while the deletion of a Namespace makes no progress. The reason
	// is the main cause. The condition becomes False with ReasonProgressing when the deletion
	// makes progress again. It does not exist if the deletion has never stalled.
	ConditionDeletionBlocked = Prefix + "DeletionBlocked"

	// ConditionInitializationBlocked is True while the initialization of a Namespace makes no
	// progress. Otherwise it is like ConditionDeletionBlocked.
	ConditionInitializationBlocked = Prefix + "InitializationBlocked"

	// ConditionExpiring is True during the last hour before an expiring Namespace is deleted. It is
	// False before that, and if the Namespace has expired but is not deleted. The message contains the
	// time of the deletion. The condition does not exist on a Namespace that has never had an expiry.
	ConditionExpiring = Prefix + "Expiring"

	// ConditionExpired is True when the expiry has passed and the operator deletes the Namespace. The policies
	// allow this deletion only if the expiry is not after lastTransitionTime, and compare this time with the clock of
	// the API server. It is False if the expiry has changed since. The condition does not exist before the first
	// attempt to delete the Namespace.
	ConditionExpired = Prefix + "Expired"
)

// Condition types of a NamespaceInitializerConfiguration.
const (
	// ConditionActive is True while every new Namespace gets the initializers of the configuration.
	ConditionActive = "Active"

	// ConditionHealthy is False if an initializer of the configuration is unresponsive or lacks
	// permissions.
	ConditionHealthy = "Healthy"
)

// Condition types of a NamespaceInitializerSet.
const (
	// ConditionEnforced is True while every new Namespace gets the initializers of the set.
	ConditionEnforced = "Enforced"
)

// Condition types of a NamespaceTemplate.
const (
	// ConditionValid is False if the template or an expression in it is invalid.
	ConditionValid = "Valid"

	// ConditionAuthorized is False if the operator cannot impersonate the ServiceAccount of the template,
	// or the ServiceAccount lacks permissions. The message contains RBAC objects that grant them. It is Unknown if
	// the API server cannot determine this, for example because an expression computes a name.
	ConditionAuthorized = "Authorized"

	// ConditionProgressing is True while Namespaces do not contain the current revision.
	ConditionProgressing = "Progressing"

	// ConditionConflicted is True if other clients or templates control objects of the template.
	ConditionConflicted = "Conflicted"
)

// Reasons for ConditionExpiring and its Events.
const (
	// ReasonExpiryScheduled: the Namespace expires in more than one hour.
	ReasonExpiryScheduled = "ExpiryScheduled"
	// ReasonExpiresSoon: the Namespace expires within one hour.
	ReasonExpiresSoon = "ExpiresSoon"
	// ReasonDeletionRefused: the Namespace has expired, but the API server rejects its deletion.
	ReasonDeletionRefused = "DeletionRefused"
	// ReasonDeletionProtected: the Namespace is not deleted because it has LabelDeletionProtection.
	ReasonDeletionProtected = "DeletionProtected"
	// ReasonExpiryDryRun: the Namespace is not deleted because the operator runs in dry-run mode.
	ReasonExpiryDryRun = "ExpiryDryRun"
	// ReasonExpiryPolicyMissing: the Namespace is not deleted because PolicyExpiry is not enforced,
	// so its annotations were not checked.
	ReasonExpiryPolicyMissing = "ExpiryPolicyMissing"
	// ReasonInvalidExpiry: the annotations are invalid.
	ReasonInvalidExpiry = "InvalidExpiry"
	// ReasonNeverExpires: the Namespace is not deleted because the cluster or the operator requires
	// it.
	ReasonNeverExpires = "NeverExpires"
	// ReasonNoExpiry: the expiry annotation was removed.
	ReasonNoExpiry = "NoExpiry"
)

// Reasons for ConditionExpired.
const (
	// ReasonExpired: the expiry has passed; the status is True.
	ReasonExpired = "Expired"
	// ReasonExpiryChanged: the expiry was changed or removed before the Namespace was deleted; the status is False.
	ReasonExpiryChanged = "ExpiryChanged"
)

// Reasons for ConditionDeletionBlocked and ConditionInitializationBlocked. If the status is True,
// the reason is the main cause instead.
const (
	// ReasonProgressing: the deletion or initialization is making progress again; the status is False.
	ReasonProgressing = "Progressing"
)

// Reasons for ConditionInitializing and the conditions of the initializers.
const (
	// ReasonPending: an initializer is pending.
	ReasonPending = "Pending"
	// ReasonCompleted: the initialization has finished.
	ReasonCompleted = "Completed"
	// ReasonNotRequired: the Namespace has no initializers.
	ReasonNotRequired = "NotRequired"
	// ReasonFailed: an initializer set a failure result; the Namespace is deleted.
	ReasonFailed = "Failed"
	// ReasonTimedOut: the initializer exceeded its timeout and was skipped. It is a reason of the
	// initializer's condition only, with status False.
	ReasonTimedOut = "TimedOut"
	// ReasonDeregistered: the initializer is no longer registered and was skipped. It is a reason
	// of the initializer's condition only, with status False.
	ReasonDeregistered = "Deregistered"
)

// Reasons for ConditionActive and ConditionEnforced.
const (
	// ReasonEnforced: new Namespaces get these initializers.
	ReasonEnforced = "Enforced"
	// ReasonEmpty: the configuration is enforced, and contains no initializers.
	ReasonEmpty = "Empty"
	// ReasonTooManyInitializers: the initializers of this configuration do not fit into the set; none
	// of them is enforced.
	ReasonTooManyInitializers = "TooManyInitializers"
	// ReasonEnforcementPending: the API server does not use the current set yet.
	ReasonEnforcementPending = "EnforcementPending"
	// ReasonRefused: an admission policy of this project rejects new Namespaces, for example because
	// another policy changes protected state.
	ReasonRefused = "Refused"
	// ReasonPolicyMissing: a required admission policy is not installed.
	ReasonPolicyMissing = "PolicyMissing"
)

// Reasons for ConditionHealthy.
const (
	// ReasonHealthy: the initializers are authorized and responsive.
	ReasonHealthy = "Healthy"
	// ReasonInitializerUnauthorized: no subject outside the control plane has VerbInitialize.
	ReasonInitializerUnauthorized = "InitializerUnauthorized"
	// ReasonInitializerUnresponsive: a Namespace waits for an initializer that has not responded for
	// more than a minute.
	ReasonInitializerUnresponsive = "InitializerUnresponsive"
	// ReasonAuthorizationUnknown: the operator could not determine who has VerbInitialize.
	ReasonAuthorizationUnknown = "AuthorizationUnknown"
)
