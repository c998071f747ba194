// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"slices"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// Kinds of policies.
const (
	MutatingKind   = "MutatingAdmissionPolicy"
	ValidatingKind = "ValidatingAdmissionPolicy"
)

// InstallCommand installs the policies.
const InstallCommand = "kubectl apply -k config/default"

// Origin is how a policy gets into a cluster.
type Origin int

// The origins: a manifest in config/default, the operator (an administrator can apply config/mutating instead), and a
// manifest that an administrator adds.
const (
	Manifest Origin = iota
	Operator
	Optional
)

// Purpose is what depends on a policy.
type Purpose int

// The purposes. No set is enforced without all policies for the state of an initialization, and only messages depend on
// those for templates, for users who confine ServiceAccounts, and for what limits the operator itself.
const (
	ForUsers Purpose = iota
	ForState
	ForTemplates
	ForConfinement
	ForOperator
)

// Policy describes the policies with one value of LabelPolicy.
type Policy struct {
	Label, Kind string
	// Directory is the directory in config that contains the manifest.
	Directory string
	Origin    Origin
	Purpose   Purpose
	// FailsOpen reports whether the failure policy at the installation is Ignore. FailsFor reports whether the operator
	// sets it to Fail while a set is enforced. It is nil if the operator does not change the field.
	FailsOpen bool
	FailsFor  func(*internalv1alpha1.NamespaceInitializerSet) bool
	// HasParameter reports whether NamespaceInitializerSet/effective is the parameter.
	HasParameter bool
	// HasSecondBinding reports whether there is a binding for custom resources named "namespaces", to which the
	// namespaceSelector of the first does not apply. That of waiting-subjects is for a second policy.
	HasSecondBinding bool
	// MayBeAudited reports whether an administrator can choose that the API server only warns. With FollowsGate, it only
	// warns while it does so for the gate. All other policies protect state.
	MayBeAudited, FollowsGate bool
	// Injects reports whether the policy injects the initializers into new Namespaces, or verifies the result.
	Injects bool
	// Exempt contains the verbs whose holders may do what the policy denies to other users. ExemptsOperator reports
	// whether all parts of the operator may, too.
	Exempt          []string
	ExemptsOperator bool
}

// inDefault is the directory of most policies in config/default.
const inDefault = "admission"

// table contains all policies, in the order of messages.
var table = []Policy{
	{Label: internalv1alpha1.PolicyInject, Kind: MutatingKind, Directory: "mutating", Origin: Operator,
		Purpose: ForState, FailsOpen: true, FailsFor: isAny, HasParameter: true, Injects: true},
	{Label: internalv1alpha1.PolicyComplete, Kind: MutatingKind, Directory: "mutating", Origin: Operator,
		Purpose: ForState, Exempt: []string{v1alpha1.VerbInitialize}},
	{Label: internalv1alpha1.PolicyRequireSet, Kind: MutatingKind, Directory: "mutating", Origin: Operator,
		Purpose: ForState, HasParameter: true, Injects: true},
	{Label: internalv1alpha1.PolicyGate, Kind: ValidatingKind, Directory: inDefault, Purpose: ForState,
		HasSecondBinding: true, MayBeAudited: true, Exempt: []string{v1alpha1.VerbInitialize, v1alpha1.VerbProvision}},
	{Label: internalv1alpha1.PolicyGuard, Kind: ValidatingKind, Directory: inDefault, Purpose: ForState, Injects: true,
		Exempt: []string{v1alpha1.VerbInitialize, v1alpha1.VerbProvision, v1alpha1.VerbRecord}},
	{Label: internalv1alpha1.PolicyWaitingSubjects, Kind: ValidatingKind, Directory: "validating", Origin: Operator,
		Purpose: ForState, FailsOpen: true, FailsFor: hasWaitingSubjects, HasParameter: true, HasSecondBinding: true,
		FollowsGate: true, ExemptsOperator: true},
	{Label: internalv1alpha1.PolicyInitializerSubjects, Kind: ValidatingKind, Directory: "validating", Origin: Operator,
		Purpose: ForState, FailsOpen: true, FailsFor: hasSubjects, HasParameter: true,
		Exempt: []string{v1alpha1.VerbRecord}, ExemptsOperator: true},
	{Label: internalv1alpha1.PolicyTemplates, Kind: ValidatingKind, Directory: "validating", Origin: Operator,
		Purpose: ForTemplates, FailsOpen: true, FailsFor: hasTemplates, HasParameter: true, ExemptsOperator: true,
		Exempt: []string{v1alpha1.VerbInitialize, v1alpha1.VerbProvision, v1alpha1.VerbUse}},
	{Label: internalv1alpha1.PolicyTemplateAuthors, Kind: ValidatingKind, Directory: inDefault, Purpose: ForTemplates,
		HasParameter: true, Exempt: []string{"get", "impersonate", "patch"}},
	{Label: internalv1alpha1.PolicyTemplateObjects, Kind: ValidatingKind, Directory: inDefault, Purpose: ForTemplates,
		Exempt: []string{v1alpha1.VerbInitialize, v1alpha1.VerbProvision}},
	{Label: internalv1alpha1.PolicyInitializerAuthors, Kind: ValidatingKind, Directory: inDefault,
		Purpose: ForConfinement, Exempt: []string{"impersonate"}},
	{Label: internalv1alpha1.PolicyConfine, Kind: ValidatingKind, Directory: "confine", Purpose: ForOperator},
	{Label: internalv1alpha1.PolicyConfinedInitializers, Kind: ValidatingKind, Directory: "initializers", Origin: Operator,
		Exempt: []string{"delete"}},
	{Label: internalv1alpha1.PolicyUnusedSettings, Kind: ValidatingKind, Directory: inDefault, FailsOpen: true,
		HasParameter: true},
	{Label: internalv1alpha1.PolicyProtection, Kind: ValidatingKind, Directory: "protection", Origin: Optional},
	{Label: "namespace-owners", Kind: ValidatingKind, Directory: "owners", Origin: Optional,
		Exempt: []string{v1alpha1.VerbDeleteAny}},
	{Label: "provisioner", Kind: ValidatingKind, Directory: "provisioner", Origin: Optional},
}

func isAny(*internalv1alpha1.NamespaceInitializerSet) bool { return true }

func hasTemplates(set *internalv1alpha1.NamespaceInitializerSet) bool { return len(set.Templates) > 0 }

func hasWaitingSubjects(set *internalv1alpha1.NamespaceInitializerSet) bool {
	return len(set.WaitingSubjects) > 0
}

func hasSubjects(set *internalv1alpha1.NamespaceInitializerSet) bool {
	return hasWaitingSubjects(set) || slices.ContainsFunc(set.Initializers,
		func(initializer internalv1alpha1.EffectiveInitializer) bool { return len(initializer.Subjects) > 0 })
}

// Where returns the policies that a function selects.
func Where(isSelected func(Policy) bool) []Policy {
	return slices.DeleteFunc(slices.Clone(table), func(p Policy) bool { return !isSelected(p) })
}

// Named returns the policies with a label.
func Named(label string) Policy { return Where(func(p Policy) bool { return p.Label == label })[0] }

// For returns the policies with a purpose.
func For(purpose Purpose) []Policy { return Where(func(p Policy) bool { return p.Purpose == purpose }) }

// Protecting returns the policies that protect the state of an initialization.
func Protecting() []Policy {
	return Where(func(p Policy) bool { return p.Purpose == ForState && p.Kind == ValidatingKind })
}

// InstalledFirst returns the policies without which the operator applies none: an administrator might be removing all.
func InstalledFirst() []Policy {
	return Where(func(p Policy) bool { return p.Purpose == ForState && p.Origin == Manifest })
}
