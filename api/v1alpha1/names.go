// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Labels and annotations of a Namespace that tell of its initialization. Users cannot set
// any of them: the API server's admission policies write and protect them
// (config/admission).
const (
	// Prefix starts every label and annotation key that belongs to this project.
	Prefix = "nslifecycle.dev/"

	// LabelInitializing is "true" on a Namespace exactly while its list of pending
	// initializers is not empty. The gate is bound to it.
	LabelInitializing = Prefix + "initializing"

	// AnnotationPendingInitializers holds the names of the initializers that have
	// not done their work yet, comma-separated, in order: the KEP's
	// spec.initializers.pending. An initializer that is done removes its own name;
	// with the last one the API server removes annotation and label.
	AnnotationPendingInitializers = Prefix + "pending-initializers"

	// AnnotationInitializers holds the list as it was when the Namespace was
	// created. It never changes, and it stays: it is what progress is counted
	// against, and what tells an initialized Namespace from one that never had to be.
	AnnotationInitializers = Prefix + "initializers"

	// AnnotationInitializationResult holds the JSON of a metav1.Status; with
	// status "Failure" the initialization has failed and the operator deletes the
	// Namespace. It is the KEP's spec.initializers.result.
	AnnotationInitializationResult = Prefix + "initialization-result"

	// AnnotationRequestedBy holds the name of the user who asked for the Namespace,
	// as the API server knew it at creation. It never changes.
	AnnotationRequestedBy = Prefix + "requested-by"

	// AnnotationInjectedAt holds the time at which the operator gave the Namespace its list,
	// in RFC 3339, where the operator did that and not the API server (config/compat). The
	// Namespace was open until then. It never changes.
	AnnotationInjectedAt = Prefix + "injected-at"
)

// What users do set on a Namespace, also when they create it. Each has a policy of its own,
// which is off by default (config/protection, config/expiry).
const (
	// LabelDeletionProtection keeps a Namespace from being deleted, whatever the value.
	LabelDeletionProtection = Prefix + "deletion-protection"

	// AnnotationExpiresAt is when a Namespace is deleted, in the format of RFC 3339.
	AnnotationExpiresAt = Prefix + "expires-at"

	// AnnotationTTL is how long after its creation a Namespace is deleted: days, hours,
	// minutes and seconds, such as "7d" or "1h30m". It is that or AnnotationExpiresAt.
	AnnotationTTL = Prefix + "ttl"
)

// LabelPolicy is on each admission policy and binding of this project and tells
// which one it is: one of the Policy names. The operator finds them by it,
// whatever prefix an installation gave to their names.
const LabelPolicy = Prefix + "policy"

// LabelInjection is on the policy guard of an installation where the operator gives new
// Namespaces their list, with value InjectionByOperator (config/compat).
const (
	LabelInjection      = Prefix + "injection"
	InjectionByOperator = "operator"
)

// The admission policies, in config/admission.
const (
	// PolicyInject writes the list of pending initializers at creation.
	PolicyInject = "inject"
	// PolicyComplete removes list and label in the write that empties the list, and restores
	// what a write leaves out.
	PolicyComplete = "complete"
	// PolicyGate refuses writes into an initializing namespace by users without VerbInitialize.
	PolicyGate = "gate"
	// PolicyGuard protects the state on the Namespace.
	PolicyGuard = "guard"
	// PolicyRequireSet refuses new namespaces that claim to be initializing where no
	// NamespaceInitializerSet exists.
	PolicyRequireSet = "require-set"
)

// The admission policies that are off by default, in config/protection and config/expiry.
const (
	// PolicyProtection refuses to delete what has LabelDeletionProtection.
	PolicyProtection = "protection"
	// PolicyExpiry says who may make a Namespace expire, and checks the values.
	PolicyExpiry = "expiry"
)

// VerbInitialize is the RBAC verb on namespaces whose holders pass the gate and
// may change what is pending. It counts only when granted by a ClusterRoleBinding.
const VerbInitialize = "initialize"

// VerbInject is the RBAC verb on namespaces of whoever gives new Namespaces their list where
// the API server cannot: the operator's ServiceAccount and nobody else (config/compat).
const VerbInject = "inject"

// EffectiveSetName is the name of the only NamespaceInitializerSet.
const EffectiveSetName = "effective"

// Condition types of a Namespace.
const (
	// ConditionInitializing is True while initializers are pending and False
	// afterwards, with one of the Reason constants. The operator sets it on every
	// Namespace, so that a client can always wait for it.
	ConditionInitializing = "Initializing"

	// ConditionInitializedSuffix makes the condition type of one initializer:
	// "<name>/Initialized", False while it is pending and True when it is done.
	ConditionInitializedSuffix = "/Initialized"

	// ConditionInitializerTurn is True while it is the turn of an initializer with a time-out,
	// which the message names; the time-out is counted from lastTransitionTime. A Namespace
	// that never had such an initializer does not have it.
	ConditionInitializerTurn = Prefix + "InitializerTurn"

	// ConditionDeletionBlocked is True while the deletion of a Namespace does not get on,
	// with the leading cause as its reason, and False with ReasonProgressing once it does
	// again. A Namespace that never stood still does not have it.
	ConditionDeletionBlocked = Prefix + "DeletionBlocked"

	// ConditionInitializationBlocked is the same for the initialization of a Namespace.
	ConditionInitializationBlocked = Prefix + "InitializationBlocked"

	// ConditionExpiring is True from the moment on a Namespace has been warned of: it is
	// deleted within the hour. Until then, and where it is not deleted although it has
	// expired, it is False, with one of the Reason constants. The message says when the
	// Namespace is deleted. A Namespace that was never to expire does not have it.
	ConditionExpiring = Prefix + "Expiring"
)

// Reasons of ConditionExpiring, and of the Events about it.
const (
	// ReasonExpiryScheduled: it is deleted, but not within the hour.
	ReasonExpiryScheduled = "ExpiryScheduled"
	// ReasonExpiresSoon: it is deleted within the hour.
	ReasonExpiresSoon = "ExpiresSoon"
	// ReasonDeletionRefused: it has expired, and the API server refuses to delete it.
	ReasonDeletionRefused = "DeletionRefused"
	// ReasonDeletionProtected: it is not deleted because it has LabelDeletionProtection.
	ReasonDeletionProtected = "DeletionProtected"
	// ReasonExpiryDryRun: it is not deleted because the operator only says what it would do.
	ReasonExpiryDryRun = "ExpiryDryRun"
	// ReasonExpiryPolicyMissing: it is not deleted because nobody has checked who asked for it.
	ReasonExpiryPolicyMissing = "ExpiryPolicyMissing"
	// ReasonInvalidExpiry: the annotations do not say clearly when it expires.
	ReasonInvalidExpiry = "InvalidExpiry"
	// ReasonNeverExpires: it is one that the cluster or the operator cannot do without.
	ReasonNeverExpires = "NeverExpires"
	// ReasonNoExpiry: the annotation has been removed.
	ReasonNoExpiry = "NoExpiry"
)

// ReasonProgressing is the reason of ConditionDeletionBlocked and
// ConditionInitializationBlocked with status False. With status True the reason is a cause:
// one of the Cause constants of internal/diagnosis.
const ReasonProgressing = "Progressing"

// Reasons of ConditionInitializing and of the initializers' own conditions.
const (
	// ReasonPending: an initializer has not done its work yet.
	ReasonPending = "Pending"
	// ReasonCompleted: done.
	ReasonCompleted = "Completed"
	// ReasonNotRequired: the Namespace never had to be initialized.
	ReasonNotRequired = "NotRequired"
	// ReasonFailed: an initializer set a Failure result; the Namespace is deleted.
	ReasonFailed = "Failed"
	// ReasonTimedOut: the initializer has not done its work in time, and the initialization
	// went on without it. Of its own condition only, which is False then.
	ReasonTimedOut = "TimedOut"
	// ReasonDeregistered: no configuration names the initializer any more, and the
	// initialization went on without it. Of its own condition only, which is False then.
	ReasonDeregistered = "Deregistered"
)

// ConditionActive is the condition type of a NamespaceInitializerConfiguration:
// True while every new Namespace gets its initializers.
const ConditionActive = "Active"

// Reasons of ConditionActive.
const (
	// ReasonEnforced: new Namespaces get these initializers.
	ReasonEnforced = "Enforced"
	// ReasonEmpty: the configuration registers nothing; it is in force all the same.
	ReasonEmpty = "Empty"
	// ReasonTooManyInitializers: the initializers of this configuration do not fit
	// into the set any more; none of them is in force.
	ReasonTooManyInitializers = "TooManyInitializers"
	// ReasonEnforcementPending: the API server has not taken notice of the set yet.
	ReasonEnforcementPending = "EnforcementPending"
	// ReasonRefused: a policy of this project refuses new namespaces, as when another
	// admission policy changes what it protects.
	ReasonRefused = "Refused"
	// ReasonPolicyMissing: an admission policy that acts on the set is not installed.
	ReasonPolicyMissing = "PolicyMissing"
	// ReasonPolicyMismatch: the admission policies are those for another kind of API server.
	ReasonPolicyMismatch = "PolicyMismatch"
)

// ConditionHealthy is the condition type of a NamespaceInitializerConfiguration that is False
// where somebody is missing who does the work of its initializers.
const ConditionHealthy = "Healthy"

// Reasons of ConditionHealthy.
const (
	// ReasonHealthy: there is somebody who may do the work, and no Namespace waits in vain.
	ReasonHealthy = "Healthy"
	// ReasonInitializerUnauthorized: nobody but the control plane holds VerbInitialize.
	ReasonInitializerUnauthorized = "InitializerUnauthorized"
	// ReasonInitializerUnresponsive: a Namespace has waited for an initializer for long, and it has not acted.
	ReasonInitializerUnresponsive = "InitializerUnresponsive"
	// ReasonAuthorizationUnknown: it could not be found out who holds VerbInitialize.
	ReasonAuthorizationUnknown = "AuthorizationUnknown"
)
