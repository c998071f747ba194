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

	// AnnotationTurnStartedAt contains the name of the first pending initializer and, after a space, the
	// time in RFC 3339 format when the operator observed the start of its turn. A deadline counts from
	// this time. Only the operator can write it. It exists only during the turn of an initializer with a
	// deadline.
	AnnotationTurnStartedAt = Prefix + "turn-started-at"
)

// LabelDeletionProtection protects a Namespace from deletion, regardless of its value. The policy for it is not
// installed by default (config/protection).
const LabelDeletionProtection = Prefix + "deletion-protection"

// TemplatesInitializer is the name of the initializer that applies NamespaceTemplates. It is registered
// while templates exist, and only Namespaces that a template selects get it. A
// NamespaceInitializerConfiguration can register it, to change its position or its settings.
const TemplatesInitializer = "templates.nslifecycle.dev"

// Labels and annotations of NamespaceTemplates.
const (
	// LabelTemplate on a Namespace is the name of a NamespaceTemplate that its creator has chosen.
	LabelTemplate = Prefix + "template"

	// LabelManagedByTemplate on an object or a ControllerRevision is the name of the NamespaceTemplate that it
	// belongs to.
	LabelManagedByTemplate = Prefix + "managed-by-template"

	// LabelPermissionsOf on an RBAC object is the name of the NamespaceTemplate that requires its permissions.
	LabelPermissionsOf = Prefix + "permissions-of"

	// LabelLocked on an object makes the API server reject changes to the object.
	LabelLocked = Prefix + "locked"

	// AnnotationNamespaceUID on an object of a template is the UID of its Namespace. The API server
	// rejects the object if the Namespace was recreated.
	AnnotationNamespaceUID = Prefix + "namespace-uid"

	// AnnotationAppliedTemplates on a Namespace records the templates and revisions whose objects the Namespace
	// contains. The operator writes it, as JSON:
	//
	//	{"<template>":{"revision":"…","target":"…","objects":{"<Kind.group>":{"<name>":"<value>"}}}}
	//
	// The value identifies the object and its content. It is not an API.
	AnnotationAppliedTemplates = Prefix + "applied-templates"

	// AnnotationServiceAccount on a ControllerRevision is the ServiceAccount that the NamespaceTemplate had
	// with this revision.
	AnnotationServiceAccount = Prefix + "service-account"

	// AnnotationCurrentRevision on a ControllerRevision is the number that it had when new Namespaces first got it. The
	// revision with the highest value is status.currentRevision of the NamespaceTemplate.
	AnnotationCurrentRevision = Prefix + "current-revision"

	// FinalizerTemplateObjects is a finalizer of a NamespaceTemplate whose objects are deleted with it.
	FinalizerTemplateObjects = Prefix + "template-objects"

	// PrefixParameter is the prefix of annotations with the values of template parameters.
	PrefixParameter = "parameter." + Prefix
)

// VerbInitialize is the RBAC verb on namespaces that allows users to write to initializing
// namespaces and to change the pending list. It must be granted at cluster scope.
const VerbInitialize = "initialize"

// VerbProvision is the RBAC verb on namespaces that allows the ServiceAccounts of templates to write to
// initializing namespaces. It does not allow changes to the pending list. It must be granted at cluster
// scope.
const VerbProvision = "provision"

// VerbRecord is the RBAC verb on namespaces that allows the operator to write its records on Namespaces, such as
// AnnotationAppliedTemplates. By these records, it deletes objects. It must be granted at cluster scope.
const VerbRecord = "record"

// VerbUse is the RBAC verb on namespacetemplates that allows users to choose a template with
// AccessRestricted.
const VerbUse = "use"

// VerbDeleteAny is the RBAC verb on namespaces that allows users to delete Namespaces that other users
// have created, in addition to the verb "delete" (config/owners).
const VerbDeleteAny = "delete-any"

// Condition types of a Namespace, a NamespaceInitializerConfiguration and a NamespaceTemplate. Tools that implement
// kstatus read them.
const (
	// ConditionReady summarizes the other conditions. On a Namespace, the reason is the state of the Namespace. On a
	// NamespaceTemplate, it is False until API servers add this generation to new Namespaces; the reason is then one for
	// ConditionActive.
	ConditionReady = "Ready"

	// ConditionStalled is True if the object does not become ready by waiting: the initialization of the Namespace has
	// failed, or a user must change the configuration, the template or its permissions. Otherwise, it does not exist.
	ConditionStalled = "Stalled"
)

// Condition types of a Namespace.
const (
	// ConditionInitializing is True while initializers are pending, and False afterwards. The
	// operator sets it on every Namespace, so that clients can always wait for it.
	ConditionInitializing = "Initializing"

	// ConditionInitializedSuffix is the suffix of the condition type of an initializer. The condition
	// is False while the initializer is pending and True when it has finished.
	ConditionInitializedSuffix = "/Initialized"

	// ConditionDeletionBlocked is True while the deletion of a Namespace makes no progress. The reason
	// is the main cause. The condition becomes False with ReasonProgressing when the deletion
	// makes progress again. It does not exist if the deletion has never stalled.
	ConditionDeletionBlocked = Prefix + "DeletionBlocked"

	// ConditionInitializationBlocked is True while the initialization of a Namespace makes no
	// progress. Otherwise it is like ConditionDeletionBlocked.
	ConditionInitializationBlocked = Prefix + "InitializationBlocked"
)

// Condition types of a NamespaceInitializerConfiguration.
const (
	// ConditionActive is True while every new Namespace gets the initializers of the configuration.
	ConditionActive = "Active"

	// ConditionHealthy is False if an initializer of the configuration is unresponsive or lacks
	// permissions.
	ConditionHealthy = "Healthy"
)

// Condition types of a NamespaceTemplate.
const (
	// ConditionValid is False if the template or an expression in it is invalid, and if the template is not applied
	// because the templates exceed a limit.
	ConditionValid = "Valid"

	// ConditionAuthorized is False if the operator cannot impersonate the ServiceAccount of the template,
	// or the ServiceAccount lacks permissions. The message contains RBAC objects that grant them. It is Unknown if
	// the API server cannot determine this, for example because an expression computes a name.
	ConditionAuthorized = "Authorized"

	// ConditionProgressing is True while the operator updates Namespaces, or retries because an object cannot be applied.
	// It is False when the operator has nothing to do: each Namespace is up to date, or objects in it prevent this. It is
	// Unknown while the rollout is paused, and if ConditionValid is False.
	ConditionProgressing = "Progressing"

	// ConditionConflicted is True if other clients or templates control objects of the template.
	ConditionConflicted = "Conflicted"
)

// Reasons for ConditionDeletionBlocked and ConditionInitializationBlocked. If the status is True,
// the reason is the main cause instead.
const (
	// ReasonProgressing: the deletion or initialization is making progress again; the status is False.
	ReasonProgressing = "Progressing"
)

// The states of a Namespace, which are the reasons for ConditionReady. They are also the reasons for
// ConditionInitializing, except ReasonTerminating.
const (
	// ReasonInitializing: initializers are pending.
	ReasonInitializing = "Initializing"
	// ReasonInitialized: no initializer is pending. It is also the reason of an initializer's condition when the
	// initializer has finished.
	ReasonInitialized = "Initialized"
	// ReasonFailed: an initializer, or the operator because of a timeout or a limit, set a failure result. The operator
	// deletes the Namespace unless it has LabelDeletionProtection.
	ReasonFailed = "Failed"
	// ReasonTerminating: the Namespace is being deleted.
	ReasonTerminating = "Terminating"
)

// Reasons for the conditions of the initializers, in addition to ReasonInitialized.
const (
	// ReasonPending: the initializer is pending.
	ReasonPending = "Pending"
	// ReasonTimedOut: the initializer exceeded its timeout and was skipped. It is a reason of the
	// initializer's condition only, with status False.
	ReasonTimedOut = "TimedOut"
	// ReasonDeregistered: the initializer is no longer registered and was skipped. It is a reason
	// of the initializer's condition only, with status False.
	ReasonDeregistered = "Deregistered"
)

// Reasons for Events about a Namespace.
const (
	// ReasonWriteRejected: the API server rejects a write of the operator to the Namespace, whose conditions can be old.
	ReasonWriteRejected = "WriteRejected"
)

// Reasons for ConditionActive.
const (
	// ReasonEnforced: new Namespaces get these initializers.
	ReasonEnforced = "Enforced"
	// ReasonAuditMode: new Namespaces get these initializers, and the gate admits early writes with a warning.
	ReasonAuditMode = "AuditMode"
	// ReasonEmpty: the configuration is enforced, and contains no initializers.
	ReasonEmpty = "Empty"
	// ReasonTooManyInitializers: the initializers of this configuration do not fit into the set; none
	// of them is enforced.
	ReasonTooManyInitializers = "TooManyInitializers"
	// ReasonEnforcementPending: the API server does not use the current set yet.
	ReasonEnforcementPending = "EnforcementPending"
	// ReasonRejected: an admission policy of this project rejects new Namespaces, for example because
	// another policy changes protected state.
	ReasonRejected = "Rejected"
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

// Reasons for ConditionValid of a NamespaceTemplate.
const (
	// ReasonValid: the template is valid.
	ReasonValid = "Valid"
	// ReasonInvalid: the message contains the object and the position of each error.
	ReasonInvalid = "Invalid"
	// ReasonTooManyTemplates: the templates exceed a limit, and this one is not applied.
	ReasonTooManyTemplates = "TooManyTemplates"
)

// Reasons for ConditionAuthorized of a NamespaceTemplate, in addition to ReasonAuthorizationUnknown.
const (
	// ReasonAuthorized: the ServiceAccount has all permissions, and the operator can impersonate it.
	ReasonAuthorized = "Authorized"
	// ReasonUnauthorized: permissions are missing. The message contains RBAC objects that grant them.
	ReasonUnauthorized = "Unauthorized"
)

// Reasons for ConditionProgressing of a NamespaceTemplate, in addition to those for ConditionValid.
const (
	// ReasonUpdating: the operator updates Namespaces; the status is True.
	ReasonUpdating = "Updating"
	// ReasonWaitingForMinReadySeconds: all canaries contain the latest revision, but not long enough; the status is True.
	ReasonWaitingForMinReadySeconds = "WaitingForMinReadySeconds"
	// ReasonFailing: an object cannot be applied, and the operator retries; the status is True.
	ReasonFailing = "Failing"
	// ReasonUpToDate: the operator has nothing to do; the status is False.
	ReasonUpToDate = "UpToDate"
	// ReasonIncomplete: the operator has updated all Namespaces except those whose own objects or metadata prevent
	// it; the status is False.
	ReasonIncomplete = "Incomplete"
	// ReasonPaused: a user has paused the rollout; the status is Unknown.
	ReasonPaused = "Paused"
	// ReasonPausedAfterFailures: the latest revision cannot be applied to several Namespaces; the status is Unknown.
	ReasonPausedAfterFailures = "PausedAfterFailures"
)

// Reasons for ConditionConflicted of a NamespaceTemplate.
const (
	// ReasonConflicting: other clients or templates control objects of the template.
	ReasonConflicting = "Conflicting"
	// ReasonNoConflict: no other client or template controls objects of the template.
	ReasonNoConflict = "NoConflict"
)

// Reasons for the failures in the status of a NamespaceTemplate. On an Initializing Namespace, they are the
// reasons for the condition of the initializer "templates.nslifecycle.dev". Events about Namespaces and
// NamespaceTemplates have them with the prefix "Template".
const (
	// ReasonInvalidTemplate: the template does not compile.
	ReasonInvalidTemplate = "InvalidTemplate"
	// ReasonInvalidObject: the object cannot be part of a template, or is invalid for the API server or a webhook.
	ReasonInvalidObject = "InvalidObject"
	// ReasonInvalidParameter: the Namespace has no value, or an invalid one, for a parameter.
	ReasonInvalidParameter = "InvalidParameter"
	// ReasonExpressionFailed: the evaluation of an expression failed.
	ReasonExpressionFailed = "ExpressionFailed"
	// ReasonInputTooLarge: the labels or annotations of the Namespace exceed a limit, or an expression costs too much
	// with its labels, annotations and parameters.
	ReasonInputTooLarge = "InputTooLarge"
	// ReasonOutputTooLarge: the rendered objects exceed a limit.
	ReasonOutputTooLarge = "OutputTooLarge"
	// ReasonTooManyObjects: the templates of the Namespace contain too many objects.
	ReasonTooManyObjects = "TooManyObjects"
	// ReasonKindNotFound: the API server does not serve the kind.
	ReasonKindNotFound = "KindNotFound"
	// ReasonSourceNotFound: the source of a copy, or the source namespace, does not exist.
	ReasonSourceNotFound = "SourceNotFound"
	// ReasonRevisionNotFound: a revision of the template was deleted.
	ReasonRevisionNotFound = "RevisionNotFound"
	// ReasonServiceAccountNotFound: the ServiceAccount of the template does not exist.
	ReasonServiceAccountNotFound = "ServiceAccountNotFound"
	// ReasonForbidden: the ServiceAccount or the operator lacks permissions, or a quota, a policy or a webhook denies the
	// object.
	ReasonForbidden = "Forbidden"
	// ReasonConflict: another client controls fields of the object.
	ReasonConflict = "Conflict"
	// ReasonClaimedByTemplate: another template contains the same object.
	ReasonClaimedByTemplate = "ClaimedByTemplate"
	// ReasonAlreadyExists: the object existed before, and the template does not adopt it.
	ReasonAlreadyExists = "AlreadyExists"
	// ReasonApplyFailed: the API server cannot process the object, or denies it for another reason.
	ReasonApplyFailed = "ApplyFailed"
	// ReasonFieldImmutable: the API server does not permit the change of the existing object.
	ReasonFieldImmutable = "FieldImmutable"
	// ReasonFieldsDiffer: admission or the API server changes fields that the operator has applied.
	ReasonFieldsDiffer = "FieldsDiffer"
	// ReasonNotRecorded: the API server rejects the record of the objects in AnnotationAppliedTemplates.
	ReasonNotRecorded = "NotRecorded"
	// ReasonObjectRetained: the operator does not delete an adopted object.
	ReasonObjectRetained = "ObjectRetained"
	// ReasonObjectTerminating: the current object is being deleted.
	ReasonObjectTerminating = "ObjectTerminating"
	// ReasonQuotaNotCounted: the ResourceQuota limits nothing yet, because kube-controller-manager has not counted it.
	ReasonQuotaNotCounted = "QuotaNotCounted"
	// ReasonPermissionsNotGranted: the API server does not grant the permissions of the RoleBinding yet.
	ReasonPermissionsNotGranted = "PermissionsNotGranted"
	// ReasonRoleNotFound: the role to which the RoleBinding refers does not exist.
	ReasonRoleNotFound = "RoleNotFound"
	// ReasonWatchNotSynced: the operator cannot list the objects of a kind, or the source of a copy.
	ReasonWatchNotSynced = "WatchNotSynced"
	// ReasonNotSelected: the labels of a new Namespace have changed, and the template may still select it again.
	ReasonNotSelected = "NotSelected"
)

// Reasons for other Events about the templates of a Namespace, with the prefix "Template".
const (
	// ReasonNotEffective: an object is not effective after effectiveTimeoutSeconds, and effectiveTimeoutPolicy is Ignore.
	ReasonNotEffective = "NotEffective"
	// ReasonNotApplied: the template selects the Namespace, but is applied only to new Namespaces.
	ReasonNotApplied = "NotApplied"
)

// Reasons for the Events about a NamespaceTemplate, in addition to ReasonInvalidTemplate, ReasonTooManyTemplates and
// ReasonUnauthorized.
const (
	// ReasonRolloutStarted: the operator updates Namespaces to another revision.
	ReasonRolloutStarted = "RolloutStarted"
	// ReasonRolloutCompleted: the operator has updated the Namespaces.
	ReasonRolloutCompleted = "RolloutCompleted"
	// ReasonRolloutPaused: a user has paused the rollout.
	ReasonRolloutPaused = "RolloutPaused"
	// ReasonRolloutPausedAfterFailures: the latest revision cannot be applied to several Namespaces.
	ReasonRolloutPausedAfterFailures = "RolloutPausedAfterFailures"
)
