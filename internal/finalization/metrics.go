// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

// Purpose is the purpose of a request to the API server.
type Purpose string

// The purposes of requests. Discovery and watch requests are not counted.
const (
	// PurposeSharedList is a list request that several namespaces can share.
	PurposeSharedList Purpose = "shared_list"
	// PurposeList is a list request for one namespace.
	PurposeList Purpose = "list"
	// PurposeConfirm is a get request for the Namespace before its content is deleted.
	PurposeConfirm Purpose = "confirm"
	// PurposeDelete is a request that deletes one object.
	PurposeDelete Purpose = "delete"
	// PurposeDeleteCollection is a request that deletes all objects of a type that cannot be listed.
	PurposeDeleteCollection Purpose = "deletecollection"
)

// Purposes returns all purposes.
func Purposes() []Purpose {
	return []Purpose{PurposeSharedList, PurposeList, PurposeConfirm, PurposeDelete, PurposeDeleteCollection}
}

// MetricsRecorder records the requests of a Finalizer. Its methods are called concurrently.
type MetricsRecorder interface {
	// Requested is called for each request. Retries of client-go are not counted.
	Requested(Purpose)
	// Deleted is called when the API server accepts the deletion of an object that was not yet
	// terminating.
	Deleted()
	// Answered is called with the number of types that were listed in a namespace. If list requests were
	// not shared, each type would require a separate request.
	Answered(types int)
}
