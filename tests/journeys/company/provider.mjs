// The identity provider of a company: oidc-provider with its own pages, for the people of a file that the test changes.
import {generateKeyPairSync} from 'node:crypto'
import {readFileSync} from 'node:fs'
import {createRequire} from 'node:module'
import {pathToFileURL} from 'node:url'

const settings = JSON.parse(readFileSync(process.argv[2], 'utf8'))
const require = createRequire(`${settings.modules}/`)
const {default: Provider} = await import(pathToFileURL(require.resolve('oidc-provider')))
const key = generateKeyPairSync('rsa', {modulusLength: 2048}).privateKey.export({format: 'jwk'})

const provider = new Provider(settings.issuer, {
  clients: [settings.client],
  jwks: {keys: [{...key, kid: 'company', use: 'sig', alg: 'RS256'}]},
  cookies: {keys: ['only for a test']},
  claims: {openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups']},
  features: {devInteractions: {enabled: true}, backchannelLogout: {enabled: true}},
  // Without its own dispatcher, which refuses to call addresses of the local machine, where the appliance of the test is.
  fetch: (url, {dispatcher, ...options}) => fetch(url, options),
  async findAccount(_context, id) {
    const person = JSON.parse(readFileSync(settings.people, 'utf8'))[id]
    return person && {accountId: id, claims: async () => ({sub: id, ...person})}
  }
})
for (const event of ['server_error', 'backchannel.error', 'authorization.error', 'grant.error']) {
  provider.on(event, (...details) => console.error(event, ...details.map((each) => each?.error_description ?? each?.message ?? '')))
}
provider.listen(settings.port, '127.0.0.1', () => console.log('ready'))
