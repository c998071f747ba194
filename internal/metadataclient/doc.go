// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metadataclient has the metadata client for names that API servers return.
//
// The metadata client of client-go joins group, version, namespace, resource and name to a path
// and cleans it. It does not check them, as the dynamic client does. An aggregated API server
// chooses what its list and discovery answers say, so that a name such as
// "../../../../../../api/v1/namespaces/other/secrets/s" would select an object of another API
// server. The client of this package makes no request with such a name.
package metadataclient
