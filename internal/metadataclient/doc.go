// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metadataclient contains a metadata client that is safe to use with names from the responses
// of API servers.
//
// The metadata client of client-go joins the group, version, namespace, resource and name into a
// path and cleans this path. Unlike the dynamic client, it does not validate these segments. An
// aggregated API server controls its list and discovery responses. Therefore, it could return a
// name such as "../../../../../../api/v1/namespaces/other/secrets/s", which selects an object on
// another API server. The client in this package does not send requests with such names.
package metadataclient
