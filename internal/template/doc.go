// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package template has the terms in which Namespaces record the NamespaceTemplates that they contain.
//
// Package observe reads everything that a decision about a Namespace depends on into one value. Package plan decides
// what is done, package execute does it, and package plan decides what follows from the results: what the Namespace
// records, its conditions, and when the next pass is due. Only observe and execute send requests.
//
// The operator renders the templates that select a Namespace, compares the result with the objects in the Namespace,
// and applies what differs. It impersonates the ServiceAccount of each template, so it writes no object with its own
// permissions.
//
// # What is known about an object
//
// The annotation v1alpha1.AnnotationAppliedTemplates of the Namespace records for each object its UID, a hash
// of the manifest, and a hash of the managedFields entry of the template's field manager. The API
// server changes this entry whenever another client changes a field that the template sets. Metadata
// is therefore sufficient to find such changes: the operator caches no content except that of the
// sources of copies. Where nothing has changed, nothing is written, also after a restart.
//
// # Recreated Namespaces
//
// Each object has an annotation with the UID of its Namespace. The policy
// PolicyTemplateObjects rejects an object that was rendered for a Namespace that has been
// deleted and recreated since.
//
// # Ownership
//
// Users can write all metadata of an object. Only the annotation of the Namespace, which PolicyGuard protects, shows
// what the operator has created: plan.Ownership derives all decisions from it and the UID of the object. An object
// that is not recorded is adopted, and an adopted object is never deleted. Two other facts show it, too: the status
// code of the response to the operator's own request, until the operator stops, and the metadata of an object in an
// initializing Namespace, in which only the operator and users with the same rights can write. The operator does not
// record that it intends to create an object: after a crash, it could not distinguish its object from that of a user.
//
// An object is deleted only if its own metadata also show that the operator has written the object for the template
// (package plan). Otherwise, a client that can write the annotation could make the operator delete any object. An
// object without this mark is kept and reported.
//
// An object is deleted only if the operator has created it, if the content of all objects of the template was applied,
// and if it is known that no other template of the Namespace contains it, now or after its rollout. If labels or
// parameters of the Namespace no longer include it, this must be so for some time, because some clients remove labels
// for a moment.
// The decision is confirmed with the Namespace and the template in the API server, and the request
// contains the UID of the object. The object remains recorded until it does not exist.
//
// If the API server rejects a change as invalid, but would create the object under another name, then the change is not
// permitted. The operator deletes an object that it has created and creates it again, unless the kind can hold data.
package template
