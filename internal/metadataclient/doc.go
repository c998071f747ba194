// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metadataclient contains a metadata client that is safe to use with names that API servers
// return.
//
// The metadata client of client-go joins group, version, namespace, resource and name to a path and
// cleans it. Unlike the dynamic client, it does not validate them. An aggregated API server
// controls its list and discovery responses, so a name such as
// "../../../../../../api/v1/namespaces/other/secrets/s" could select an object of another API
// server. The client of this package sends no request with such a name.
package metadataclient
