// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initialization holds the rules of a Namespace's birth as pure
// functions: which initializers are in force ([Merge]), what a Namespace says
// about itself ([Observe]), which conditions follow from that
// ([ComputeConditions]), and when a failed Namespace may be deleted
// ([WhyNotDelete]). Where the API server has no policy that gives new Namespaces their
// list, the operator does that ([ComputeInjection]). It makes no API calls and reads no
// clock.
//
// The states of a Namespace, as [Observe] tells them:
//
//	NotRequired                     never had a list
//	Pending ──▶ Completed           the list has become empty
//	   │
//	   └──────▶ Failed              a result with status Failure was set
//
// There is no way back: admission refuses to put a list on a Namespace that has
// none (config/admission/guard.yaml).
package initialization
