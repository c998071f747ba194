# Requires that the author of a NamespaceTemplate is allowed to impersonate its ServiceAccount, with whose
# permissions the operator writes the objects, to read the sources of its copies, and to change the metadata of
# namespaces if the template does so. Otherwise, users
# who can write templates would get the permissions of every such ServiceAccount.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: template-authors
  labels:
    nslifecycle.dev/policy: template-authors
spec:
  # Until an API server recognizes the parameter kind, for up to 30 s after the installation or its start,
  # templates cannot be written. This affects no other requests.
  failurePolicy: Fail
  paramKind:
    apiVersion: internal.nslifecycle.dev/v1alpha1
    kind: NamespaceInitializerSet
  matchConstraints:
    resourceRules:
    - apiGroups: ["nslifecycle.dev"]
      apiVersions: ["*"]
      operations: ["CREATE", "UPDATE"]
      resources: ["namespacetemplates"]
      scope: Cluster
  matchConditions:
  - name: spec-has-changed
    expression: "oldObject == null || object.spec != oldObject.spec"
  variables:
  - name: systemNamespace
    expression: "params.?systemNamespace.orValue('')"
  - name: sourceNamespace
    expression: "params.?sourceNamespace.orValue('')"
  # The CRD allows at most 16 copies, so that each check below has its own CEL budget: an expression can
  # contain at most two checks.
  - name: copies
    expression: "object.spec.?objects.orValue([]).filter(o, has(o.sourceRef)).map(o, o.sourceRef)"
  - name: resources
    expression: "variables.copies.map(c, c.kind == 'Secret' ? 'secrets' : 'configmaps')"
  - name: sources
    expression: >-
      variables.copies.map(c, c.kind + ' "' + variables.sourceNamespace + '/' + c.name + '", which is copied by')
  - name: user
    expression: "'user \"' + request.userInfo.username + '\" is not allowed to '"
  - name: template
    expression: "' NamespaceTemplate \"' + object.metadata.?name.orValue('') + '\"'"
  validations:
  - expression: "variables.systemNamespace != ''"
    reason: Forbidden
    message: >-
      the author of a NamespaceTemplate must be allowed to impersonate its ServiceAccount, whose namespace is not known
      yet: wait until the operator is running
  # The author of a template gets all rights of the ServiceAccount.
  - expression: >-
      {{include "mayImpersonate" "namespace" "variables.systemNamespace" "name" "object.spec.serviceAccountName"}}
    reason: Forbidden
    messageExpression: >-
      variables.user + 'impersonate ServiceAccount "' + variables.systemNamespace + '/' + object.spec.serviceAccountName
      + '", with whose permissions the operator writes the objects of' + variables.template
  # The API server sets the metadata of new namespaces without checking the permissions of the ServiceAccount.
  - expression: >-
      !has(object.spec.metadata) || authorizer.group('').resource('namespaces').check('patch').allowed()
    reason: Forbidden
    messageExpression: >-
      variables.user + 'patch namespaces, whose labels and annotations are set by' + variables.template
{{- range $i := 16}}
  - expression: >-
      variables.copies.size() <= {{$i}} || authorizer.group('').resource(variables.resources[{{$i}}])
      .namespace(variables.sourceNamespace).name(variables.copies[{{$i}}].name).check('get').allowed()
    reason: Forbidden
    messageExpression: "variables.user + 'get ' + variables.sources[{{$i}}] + variables.template"
{{- end}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: template-authors
  labels:
    nslifecycle.dev/policy: template-authors
spec:
  policyName: template-authors
  validationActions: ["Deny"]
  # Without a set, the namespace of the ServiceAccounts is unknown.
  paramRef:
    name: effective
    parameterNotFoundAction: Deny
