// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

const (
	msgOneDocument = "%s must contain exactly one %s, got %d"
	msgDecode      = "failed to decode %s in %s: %w"
	msgInvalid     = "NamespaceTemplate %q is invalid:\n%s"

	msgParameterSyntax  = "invalid parameter %q; must be NAME=VALUE, and NAME must consist of letters and digits"
	msgParameterTwice   = "the parameter %s is given more than once"
	msgUnknownParameter = "template %q has no parameter %s; its parameters: %s"
	msgNotSelected      = "template %q does not select namespace %q"

	msgNoSuite       = "no %s found in %s"
	msgNoCases       = "%s has no test cases; a test case is a directory beside it that contains %s"
	msgNoExpectation = "the test case has neither %s nor %s; use --update to write the result"
	msgBothExpected  = "the test case has both %s and %s"

	msgClaimed        = "template %q also contains this object"
	msgUnreadable     = "the namespace records an invalid state: %v"
	msgAdoptNever     = "the object exists already, and the template does not adopt objects"
	msgKindNotServed  = "the API server does not serve kind %q in %q"
	msgClusterScoped  = "kind %q in %q is cluster-scoped, and templates can contain only namespaced kinds"
	msgCopyNotShown   = "the data of the copy is not compared"
	msgDryRunFailed   = "the API server rejects the object: %v"
	msgDryRunRejected = "dry run of %s in namespace %s: %v"

	msgNoRevisionNumber  = "revision %d of NamespaceTemplate %q not found"
	msgRevisionNotStored = "revision %s of NamespaceTemplate %q, which new namespaces get, is not stored"
	msgNoEarlierRevision = "NamespaceTemplate %q has no earlier revision"
	msgSameRevision      = "NamespaceTemplate %q already has revision %d"
	msgDecodeRevision    = "failed to decode revision %d: %w"
)
